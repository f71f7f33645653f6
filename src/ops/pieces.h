/* Tables of pieces: how ops learn what the elements of a slice belong to. Row i of a table [P,4] i64 is piece i of the
 * slice (tensor/segments.h), in the slice's order. What is in no piece is padding, and is left alone. */
#ifndef NDP_OPS_PIECES_H
#define NDP_OPS_PIECES_H

#include "ops/op.h"
#include "tensor/segments.h"

/* The columns. COPIES is a segment's, a whole number; DECAYS is 1 where weight decay applies, else 0. */
enum { NDP_PIECE_FIRST, NDP_PIECE_COUNT, NDP_PIECE_COPIES, NDP_PIECE_DECAYS, NDP_PIECE_COLUMNS };

/* Pieces of slice `index` of `shards`; 0: the slice is all padding. */
int64_t ndp_pieces_count(const ndp_segments *s, int shards, int index);
/* Fills the table, as many rows of NDP_PIECE_COLUMNS without gaps. */
void ndp_pieces_fill(const ndp_segments *s, int shards, int index, int64_t *out);

/* Row i of a table. */
static inline const int64_t *ndp_piece_at(const ndp_view *pieces, int64_t i) {
    return (const int64_t *)pieces->data + i * pieces->ld;
}

/* NDP_EBUG where `pieces` is no table; an absent one is an empty one. `op` names the op in the message. */
ndp_status ndp_pieces_check(const char *op, const ndp_view *pieces);

/* square_sum adds each piece in at most this many parts, whose sums are added in their order: threads only choose who
 * computes which part. */
enum { NDP_SQUARE_PARTS = 256, NDP_SQUARE_LANES = 16 };

/* Elements of a part of a piece of n elements; the last part has what is left. */
static inline int64_t ndp_square_part(int64_t n) {
    int64_t blocks = (n + NDP_SEGMENT_ALIGN - 1) / NDP_SEGMENT_ALIGN;
    return (blocks + NDP_SQUARE_PARTS - 1) / NDP_SQUARE_PARTS * NDP_SEGMENT_ALIGN;
}

#endif
