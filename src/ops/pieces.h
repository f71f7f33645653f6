/* Tables of pieces: how ops learn what the elements of a slice belong to. Row i of a table [P,3] i64 is piece i of the
 * slice (tensor/segments.h). What is in no piece is padding, and is left alone.
 *
 * Where several optimizers update the tensors of a model, tables are [P,4], and the pieces of one optimizer follow
 * those of another (optim/groups.h fills them). A state that some of them do not keep is shorter than the slice: PLACE
 * says where a piece begins in it. For the pieces of coded tensors it says where the scales of their blocks begin.
 *
 * Where numbers are rounded at random (ops/rounding.h), tables are [P,11]: the last columns say where a piece is in its
 * tensor, the same on all layouts. */
#ifndef NDP_OPS_PIECES_H
#define NDP_OPS_PIECES_H

#include "ops/dynamic_map.h"
#include "ops/rounding.h"
#include "ops/shape.h"
#include "ops/update.h"
#include "tensor/segments.h"

/* The columns. FACTS are two numbers: the copies of the segment, and its group, which is a row of the update's
 * constants. */
enum {
    NDP_PIECE_FIRST,
    NDP_PIECE_COUNT,
    NDP_PIECE_FACTS,
    NDP_PIECE_COLUMNS,
    NDP_PIECE_PLACE = NDP_PIECE_COLUMNS,
    NDP_PIECE_COLUMNS_PLACED,
    /* Of ndp_rounding. */
    NDP_PIECE_TENSOR = NDP_PIECE_COLUMNS_PLACED,
    NDP_PIECE_AT,
    NDP_PIECE_ROWS,
    NDP_PIECE_COLS,
    NDP_PIECE_PITCH,
    NDP_PIECE_ROW,
    NDP_PIECE_COL,
    NDP_PIECE_COLUMNS_ROUNDED
};

static inline int64_t ndp_piece_facts(int64_t copies, int64_t group) { return copies | group << 32; }
static inline int64_t ndp_piece_copies(const int64_t *piece) { return piece[NDP_PIECE_FACTS] & 0xffffffff; }
static inline int64_t ndp_piece_group(const int64_t *piece) { return piece[NDP_PIECE_FACTS] >> 32; }

/* Row i of a table. */
static inline const int64_t *ndp_piece_at(const ndp_view *pieces, int64_t i) {
    return (const int64_t *)pieces->data + i * pieces->ld;
}
/* Where a piece begins in a state, for weights of `n` elements: a shorter state has room for the pieces that keep it.
 */
static inline int64_t ndp_piece_place(const ndp_view *pieces, const int64_t *piece, const ndp_view *state, int64_t n) {
    return piece[state->cols < n && pieces->cols > NDP_PIECE_PLACE ? NDP_PIECE_PLACE : NDP_PIECE_FIRST];
}
/* The constants of a piece's update (ops/update.h). */
static inline const double *ndp_piece_constants(const void *constants, const int64_t *piece) {
    return (const double *)constants + ndp_piece_group(piece) * NDP_OPTIMIZER_CONSTANTS;
}

/* How the numbers of a piece are rounded at random; for tables that say it. */
static inline ndp_rounding ndp_piece_rounding(const void *constants, const int64_t *piece) {
    const double *k = ndp_piece_constants(constants, piece);
    ndp_rounding r = {
        (uint32_t)k[NDP_UPDATE_SEED],    (uint32_t)k[NDP_UPDATE_NUMBER],  (uint32_t)piece[NDP_PIECE_TENSOR],
        (uint32_t)piece[NDP_PIECE_ROWS], (uint32_t)piece[NDP_PIECE_COLS], (uint32_t)piece[NDP_PIECE_PITCH],
        (uint32_t)piece[NDP_PIECE_ROW],  (uint32_t)piece[NDP_PIECE_COL],  piece[NDP_PIECE_AT]};
    return r;
}

/* NDP_EBUG where `pieces` is not a table; an absent one is an empty one. `op` names the op in the message. */
ndp_status ndp_pieces_check(const char *op, const ndp_view *pieces);

/* Elements of a part of a piece of n elements; the last part has the rest. */
static inline int64_t ndp_square_part(int64_t n) {
    int64_t blocks = (n + NDP_SEGMENT_ALIGN - 1) / NDP_SEGMENT_ALIGN;
    return (blocks + NDP_SQUARE_PARTS - 1) / NDP_SQUARE_PARTS * NDP_SEGMENT_ALIGN;
}

#endif
