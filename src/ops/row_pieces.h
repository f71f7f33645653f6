/* Rows of a rank of the context axis, where an op sees them all: attr.parts pieces one after another, each of rows that
 * follow each other in the micro-batch. With two of them rank r of attr.ranks has pieces r and 2 ranks - 1 - r (the
 * zig-zag cut), with one piece r; attr.place is this rank. Without ranks all rows are one piece. */
#ifndef NDP_OPS_ROW_PIECES_H
#define NDP_OPS_ROW_PIECES_H

#include "ops/op.h"

/* Pieces of this rank, and of all. */
static inline int64_t ndp_row_pieces_here(const ndp_op_attr *a) { return a->ranks > 0 ? a->parts : 1; }
static inline int64_t ndp_row_pieces(const ndp_op_attr *a) { return a->ranks > 0 ? (int64_t)a->ranks * a->parts : 1; }

/* The number in the micro-batch of piece b of this rank. */
static inline int64_t ndp_row_piece_number(const ndp_op_attr *a, int64_t b) {
    return b == 0 ? a->place : 2 * (int64_t)a->ranks - 1 - a->place;
}

/* Where piece `number` stands among those that all ranks hand in, rank by rank. */
static inline int64_t ndp_row_piece_at(const ndp_op_attr *a, int64_t number) {
    return number < a->ranks ? number * a->parts : (2 * (int64_t)a->ranks - 1 - number) * a->parts + 1;
}

/* Of the last rows of each piece, `rows` of them for all: the row that stands `back` rows before piece b of this rank,
 * back >= 1; there is one. */
static inline int64_t ndp_row_before_piece(const ndp_op_attr *a, int64_t rows, int64_t b, int64_t back) {
    int64_t each = rows / ndp_row_pieces(a), whole = (back - 1) / each;
    return ndp_row_piece_at(a, ndp_row_piece_number(a, b) - 1 - whole) * each + each - 1 - (back - 1 - whole * each);
}

#endif
