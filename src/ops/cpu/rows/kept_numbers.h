/* Weights and states of an update as fp32, some elements at a time, however they are kept (ops/update.h): fp32 where it
 * lies, other forms in room on the stack, and rounded or split into it afterwards. */
#ifndef NDP_OPS_CPU_ROWS_KEPT_NUMBERS_H
#define NDP_OPS_CPU_ROWS_KEPT_NUMBERS_H

#include "ops/cpu/rows/range_kernel.h"
#include "ops/pieces.h"
#include "ops/update.h"

enum { NDP_KEPT_PART = 512 }; /* elements at a time: a multiple of NDP_SEGMENT_ALIGN and of NDP_CODE_BLOCK */

/* The words of the elements at a time, each kind by itself, so that compilers make vectors of elements. */
typedef struct ndp_kept_words {
    uint32_t of[4][NDP_KEPT_PART];
} ndp_kept_words;

/* The words of elements [first, first + n) of a piece; nothing if its table does not say where it is. */
NDP_INLINE void ndp_kept_draw(const ndp_op_call *c, const int64_t *piece, int64_t first, int n, ndp_kept_words *out) {
    uint32_t rows[NDP_KEPT_PART], cols[NDP_KEPT_PART];
    if (c->in[NDP_UPDATE_PIECES].cols != NDP_PIECE_COLUMNS_ROUNDED)
        return;
    const ndp_rounding r = ndp_piece_rounding(c->in[NDP_UPDATE_CONSTANTS].data, piece);
    int64_t row = (r.at + first) / r.cols, col = (r.at + first) % r.cols, member = row % r.rows;
    row += r.row + row / r.rows * (r.pitch - r.rows);
    for (int i = 0; i < n; i++) {
        rows[i] = (uint32_t)row, cols[i] = r.col + (uint32_t)col;
        bool ends = ++col == r.cols, last = ends && member + 1 == r.rows;
        col = ends ? 0 : col;
        row += ends + (last ? r.pitch - r.rows : 0);
        member = last ? 0 : member + ends;
    }
    SIMD for (int i = 0; i < n; i++) {
        philox4x32_ctr_t w = ndp_rounding_at(r.seed, r.update, r.tensor, rows[i], cols[i]);
        out->of[0][i] = w.v[0], out->of[1][i] = w.v[1], out->of[2][i] = w.v[2], out->of[3][i] = w.v[3];
    }
}

/* Elements [at, at + n) of a row of fp32 or bf16. */
NDP_INLINE float *ndp_kept_get(const ndp_view *v, int64_t at, int n, float *room) {
    if (!v->data || v->dtype == NDP_F32)
        return v->data ? (float *)v->data + at : NULL;
    const uint16_t *restrict x = (const uint16_t *)v->data + at;
    SIMD for (int i = 0; i < n; i++) room[i] = ndp_bf16_to_f32(x[i]);
    return room;
}

NDP_INLINE void ndp_kept_put(const ndp_view *v, int64_t at, int n, const float *restrict x,
                             const uint32_t *restrict words) {
    if (!v->data || v->dtype == NDP_F32)
        return;
    uint16_t *restrict to = (uint16_t *)v->data + at;
    SIMD for (int i = 0; i < n; i++) to[i] = ndp_round_random(x[i], words[i]);
}

/* The same of the weights: in two parts, with a copy that is rounded to the nearest, or alone. */
NDP_INLINE float *ndp_kept_weights(const ndp_op_call *c, int64_t at, int n, float *room) {
    const ndp_view *w = &c->in[NDP_UPDATE_WEIGHT];
    if (w->dtype != NDP_SPLIT_REST)
        return ndp_kept_get(w, at, n, room);
    const uint16_t *restrict high = (const uint16_t *)c->out[1].data + at, *restrict rest = (uint16_t *)w->data + at;
    SIMD for (int i = 0; i < n; i++) room[i] = ndp_split_join(high[i], rest[i]);
    return room;
}

NDP_INLINE void ndp_keep_weights(const ndp_op_call *c, int64_t at, int n, const float *restrict x,
                                 const uint32_t *restrict words) {
    const ndp_view *w = &c->out[0];
    uint16_t *restrict copy = c->out[1].data ? (uint16_t *)c->out[1].data + at : NULL;
    if (w->dtype == NDP_SPLIT_REST) {
        uint16_t *restrict rest = (uint16_t *)w->data + at;
        SIMD for (int i = 0; i < n; i++) {
            copy[i] = ndp_split_high(x[i]);
            rest[i] = ndp_split_rest(x[i], copy[i]);
        }
        return;
    }
    ndp_kept_put(w, at, n, x, words);
    if (copy) {
        SIMD for (int i = 0; i < n; i++) copy[i] = ndp_f32_to_bf16(x[i]);
    }
}

#endif
