/* Tables of pieces: how ops learn what the elements of a slice belong to. Row i of a table [P,4] i64 is piece i of the
 * slice (tensor/segments.h), in the slice's order. What is in no piece is padding, and is left alone.
 *
 * Optimizers that update some tensors apart from the others have tables [P,5], where the pieces of those come last.
 * States that have room for the other elements only are shorter than the slice: PLACE says where a piece begins in
 * them. For the pieces of coded tensors it says where the scales of their blocks begin. */
#ifndef NDP_OPS_PIECES_H
#define NDP_OPS_PIECES_H

#include "ops/dynamic_map.h"
#include "ops/op.h"
#include "tensor/segments.h"

/* The columns. COPIES is a segment's, a whole number; DECAYS is 1 where weight decay applies, else 0. */
enum {
    NDP_PIECE_FIRST,
    NDP_PIECE_COUNT,
    NDP_PIECE_COPIES,
    NDP_PIECE_DECAYS,
    NDP_PIECE_COLUMNS,
    NDP_PIECE_PLACE = NDP_PIECE_COLUMNS,
    NDP_PIECE_COLUMNS_APART
};

/* Which tensors an optimizer updates apart from the others. */
typedef enum ndp_apart {
    NDP_APART_NONE,
    NDP_APART_PROJECTIONS, /* those that are updated as a whole */
    NDP_APART_CODED        /* those whose states are codes */
} ndp_apart;
static inline bool ndp_segment_is_apart(const ndp_segment *s, ndp_apart apart) {
    return apart == NDP_APART_PROJECTIONS ? s->projection : apart == NDP_APART_CODED && s->coded;
}
/* Columns of a table. */
static inline int ndp_piece_columns(ndp_apart apart) {
    return apart != NDP_APART_NONE ? NDP_PIECE_COLUMNS_APART : NDP_PIECE_COLUMNS;
}

/* Pieces of slice `index` of `shards`: all (0: the slice is padding), and those apart. `rest`: elements of the others;
 * `blocks`: of coded ones. */
typedef struct ndp_piece_counts {
    int64_t all, apart, rest, blocks;
} ndp_piece_counts;
ndp_piece_counts ndp_pieces_count(const ndp_segments *s, int shards, int index, ndp_apart apart);
/* Fills the table, as many rows of ndp_piece_columns(apart) without gaps. */
void ndp_pieces_fill(const ndp_segments *s, int shards, int index, ndp_apart apart, int64_t *out);
/* Where element `element` of the slice is: of a tensor that is not apart, in a state without those that are; of a coded
 * one, its block among the scales. */
int64_t ndp_pieces_place(const ndp_segments *s, int shards, int index, ndp_apart apart, int64_t element);

/* Row i of a table. */
static inline const int64_t *ndp_piece_at(const ndp_view *pieces, int64_t i) {
    return (const int64_t *)pieces->data + i * pieces->ld;
}
/* Where a piece begins in a state, for weights of `n` elements: a shorter state has room for these pieces only. (If it
 * is as long, nothing is apart, no two pieces have a gap, and the two columns are equal.) */
static inline int64_t ndp_piece_place(const ndp_view *pieces, const int64_t *piece, const ndp_view *state, int64_t n) {
    return piece[state->cols < n && pieces->cols > NDP_PIECE_PLACE ? NDP_PIECE_PLACE : NDP_PIECE_FIRST];
}

/* NDP_EBUG where `pieces` is not a table; an absent one is an empty one. `op` names the op in the message. */
ndp_status ndp_pieces_check(const char *op, const ndp_view *pieces);

/* square_sum adds each piece in at most this many parts, whose sums are added in their order: threads only choose who
 * computes which part. */
enum { NDP_SQUARE_PARTS = 256, NDP_SQUARE_LANES = 16 };

/* Elements of a part of a piece of n elements; the last part has the rest. */
static inline int64_t ndp_square_part(int64_t n) {
    int64_t blocks = (n + NDP_SEGMENT_ALIGN - 1) / NDP_SEGMENT_ALIGN;
    return (blocks + NDP_SQUARE_PARTS - 1) / NDP_SQUARE_PARTS * NDP_SEGMENT_ALIGN;
}

#endif
