/* adamw, sgd, lion, muon, muon_momentum: blocks of the one piece in call->in[NDP_UPDATE_PIECES]. `copied` and
 * `with_momentum` are constants at each call of a loop, so that no test is left in it. */
#include "ops/cpu/rows/range_kernel.h"
#include "ops/pieces.h"
#include "ops/update.h"

#include <math.h>

/* Elements [first, end) of a piece, which begins at the pointers. */
typedef struct update_range {
    float *w, *state[NDP_OPTIMIZER_STATES];
    const float *g;
    uint16_t *copy; /* NULL: none is written */
    const double *k;
    float clip;
    int64_t first, end;
} update_range;

static update_range range_of(const ndp_op_call *c, int64_t first, int64_t last) {
    const int64_t *piece = ndp_piece_at(&c->in[NDP_UPDATE_PIECES], 0);
    int64_t skip = piece[NDP_PIECE_FIRST], n = piece[NDP_PIECE_COUNT], end = last * NDP_SEGMENT_ALIGN;
    const double *clip = c->in[NDP_UPDATE_CLIP].data;
    update_range u = {.w = (float *)c->in[NDP_UPDATE_WEIGHT].data + skip,
                      .g = (const float *)c->in[NDP_UPDATE_GRAD].data + skip,
                      .copy = c->out[1].data ? (uint16_t *)c->out[1].data + skip : NULL,
                      .k = ndp_piece_constants(c->in[NDP_UPDATE_CONSTANTS].data, piece),
                      .clip = clip ? (float)*clip : 1,
                      .first = first * NDP_SEGMENT_ALIGN,
                      .end = end < n ? end : n};
    for (int s = 0; s < NDP_OPTIMIZER_STATES; s++) {
        float *state = c->in[NDP_UPDATE_STATE + s].data;
        u.state[s] = state ? state + ndp_piece_place(&c->in[NDP_UPDATE_PIECES], piece, &c->in[NDP_UPDATE_STATE + s],
                                                     c->in[NDP_UPDATE_WEIGHT].cols)
                           : NULL;
    }
    return u;
}

NDP_INLINE float flush(float x) { return x < (float)NDP_TINY_MOMENT && x > -(float)NDP_TINY_MOMENT ? 0 : x; }

NDP_INLINE void adamw_loop(const update_range *u, bool copied) {
    float *restrict w = u->w, *restrict m = u->state[0], *restrict v = u->state[1];
    const float *restrict g = u->g;
    uint16_t *restrict copy = u->copy;
    const double *k = u->k;
    const float keep = (float)k[NDP_ADAMW_KEEP], scale = u->clip, eps = (float)k[NDP_ADAMW_EPS];
    const float new1 = (float)k[NDP_ADAMW_NEW1];
    const float old2 = (float)k[NDP_ADAMW_OLD2], new2 = (float)(1 - k[NDP_ADAMW_OLD2]);
    const float rate = (float)k[NDP_ADAMW_RATE], unbias = (float)k[NDP_ADAMW_UNBIAS];
    const int64_t first = u->first, end = u->end;
    SIMD for (int64_t i = first; i < end; i++) {
        float gi = g[i] * scale;
        float mi = flush(ndp_fused(new1, gi - m[i], m[i]));
        float vi = flush(ndp_fused(old2, v[i], new2 * (gi * gi)));
        float wi = ndp_fused(w[i], keep, -rate * (mi / ndp_fused(sqrtf(vi), unbias, eps)));
        m[i] = mi;
        v[i] = vi;
        w[i] = wi;
        if (copied)
            copy[i] = ndp_f32_to_bf16(wi);
    }
}

void NDP_RANGE_KERNEL(adamw)(const ndp_op_call *c, int64_t first, int64_t last) {
    update_range u = range_of(c, first, last);
    if (u.copy)
        adamw_loop(&u, true);
    else
        adamw_loop(&u, false);
}

/* The momentum buffer starts as zeros, which makes the first step b = g. */
NDP_INLINE void sgd_loop(const update_range *u, bool copied, bool with_momentum) {
    float *restrict w = u->w, *restrict b = u->state[0];
    const float *restrict g = u->g;
    uint16_t *restrict copy = u->copy;
    const double *k = u->k;
    const float lr = (float)k[NDP_SGD_LR], decay = (float)k[NDP_SGD_DECAY], scale = u->clip;
    const float momentum = (float)k[NDP_SGD_MOMENTUM];
    const int64_t first = u->first, end = u->end;
    SIMD for (int64_t i = first; i < end; i++) {
        float d = ndp_fused(g[i], scale, decay * w[i]);
        if (with_momentum)
            b[i] = d = flush(ndp_fused(momentum, b[i], d));
        float wi = ndp_fused(-lr, d, w[i]);
        w[i] = wi;
        if (copied)
            copy[i] = ndp_f32_to_bf16(wi);
    }
}

void NDP_RANGE_KERNEL(sgd)(const ndp_op_call *c, int64_t first, int64_t last) {
    update_range u = range_of(c, first, last);
    bool with_momentum = u.k[NDP_SGD_MOMENTUM] != 0;
    if (u.copy && with_momentum)
        sgd_loop(&u, true, true);
    else if (u.copy)
        sgd_loop(&u, true, false);
    else if (with_momentum)
        sgd_loop(&u, false, true);
    else
        sgd_loop(&u, false, false);
}

/* The sign of a broken gradient is NaN, not 0. */
NDP_INLINE void lion_loop(const update_range *u, bool copied) {
    float *restrict w = u->w, *restrict m = u->state[0];
    const float *restrict g = u->g;
    uint16_t *restrict copy = u->copy;
    const double *k = u->k;
    const float keep = (float)k[NDP_LION_KEEP], lr = (float)k[NDP_LION_LR], scale = u->clip;
    const float old1 = (float)k[NDP_LION_OLD1], new1 = (float)k[NDP_LION_NEW1];
    const float old2 = (float)k[NDP_LION_OLD2], new2 = (float)k[NDP_LION_NEW2];
    const int64_t first = u->first, end = u->end;
    SIMD for (int64_t i = first; i < end; i++) {
        float gi = g[i] * scale, mi = m[i];
        float c = ndp_fused(old1, mi, new1 * gi);
        float sign = c > 0 ? 1 : c < 0 ? -1 : c;
        float wi = ndp_fused(w[i], keep, -lr * sign);
        m[i] = flush(ndp_fused(old2, mi, new2 * gi));
        w[i] = wi;
        if (copied)
            copy[i] = ndp_f32_to_bf16(wi);
    }
}

void NDP_RANGE_KERNEL(lion)(const ndp_op_call *c, int64_t first, int64_t last) {
    update_range u = range_of(c, first, last);
    if (u.copy)
        lion_loop(&u, true);
    else
        lion_loop(&u, false);
}

/* Nesterov's momentum. The direction is written where other updates have weights. */
void NDP_RANGE_KERNEL(muon_momentum)(const ndp_op_call *c, int64_t first, int64_t last) {
    update_range u = range_of(c, first, last);
    float *restrict direction = u.w, *restrict m = u.state[0];
    const float *restrict g = u.g;
    const float momentum = (float)u.k[NDP_MUON_MOMENTUM], fresh = (float)(1 - u.k[NDP_MUON_MOMENTUM]), scale = u.clip;
    const int64_t from = u.first, end = u.end;
    SIMD for (int64_t i = from; i < end; i++) {
        float gi = g[i] * scale, mi = flush(ndp_fused(fresh, gi - m[i], m[i]));
        m[i] = mi;
        direction[i] = ndp_fused(momentum, mi - gi, gi);
    }
}

/* The direction is clipped already. */
NDP_INLINE void muon_loop(const update_range *u, bool copied) {
    float *restrict w = u->w;
    const float *restrict direction = u->g;
    uint16_t *restrict copy = u->copy;
    const float keep = (float)u->k[NDP_MUON_KEEP], lr = (float)u->k[NDP_MUON_LR];
    const int64_t first = u->first, end = u->end;
    SIMD for (int64_t i = first; i < end; i++) {
        float wi = ndp_fused(w[i], keep, -lr * direction[i]);
        w[i] = wi;
        if (copied)
            copy[i] = ndp_f32_to_bf16(wi);
    }
}

void NDP_RANGE_KERNEL(muon)(const ndp_op_call *c, int64_t first, int64_t last) {
    update_range u = range_of(c, first, last);
    if (u.copy)
        muon_loop(&u, true);
    else
        muon_loop(&u, false);
}
