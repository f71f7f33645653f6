/* adamw, sgd, lion, muon, muon_momentum: blocks of the one piece in call->in[NDP_UPDATE_PIECES], some elements at a
 * time. `with_momentum` is a constant at each call of a loop, so that no test is left in it. */
#include "ops/cpu/rows/kept_numbers.h"

#include <math.h>

/* Some elements of a piece in fp32. */
typedef struct update_part {
    float *w, *state[NDP_OPTIMIZER_STATES];
    const float *g;
    const double *k;
    float clip;
    int n;
} update_part;
typedef void update_loop(const update_part *u);

/* Blocks [first, last) of a piece by `loop`, which is inlined. */
NDP_INLINE void walk(const ndp_op_call *c, int64_t first, int64_t last, update_loop *loop) {
    const ndp_view *pieces = &c->in[NDP_UPDATE_PIECES], *state = &c->in[NDP_UPDATE_STATE];
    const int64_t *piece = ndp_piece_at(pieces, 0);
    const double *clip = c->in[NDP_UPDATE_CLIP].data;
    int64_t begin = piece[NDP_PIECE_FIRST], n = piece[NDP_PIECE_COUNT], end = last * NDP_SEGMENT_ALIGN;
    float room[1 + NDP_OPTIMIZER_STATES][NDP_KEPT_PART];
    ndp_kept_words words;
    end = end < n ? end : n;
    for (int64_t at = first * NDP_SEGMENT_ALIGN; at < end; at += NDP_KEPT_PART) {
        update_part u = {.g = (const float *)c->in[NDP_UPDATE_GRAD].data + begin + at,
                         .k = ndp_piece_constants(c->in[NDP_UPDATE_CONSTANTS].data, piece),
                         .clip = clip ? (float)*clip : 1,
                         .n = end - at < NDP_KEPT_PART ? (int)(end - at) : NDP_KEPT_PART};
        int64_t place[NDP_OPTIMIZER_STATES];
        ndp_kept_draw(c, piece, at, u.n, &words);
        u.w = ndp_kept_weights(c, begin + at, u.n, room[0]);
        for (int s = 0; s < NDP_OPTIMIZER_STATES; s++) {
            place[s] = ndp_piece_place(pieces, piece, &state[s], c->in[NDP_UPDATE_WEIGHT].cols) + at;
            u.state[s] = ndp_kept_get(&state[s], place[s], u.n, room[1 + s]);
        }
        loop(&u);
        ndp_keep_weights(c, begin + at, u.n, u.w, words.of[NDP_ROUNDING_WEIGHT]);
        for (int s = 0; s < NDP_OPTIMIZER_STATES; s++)
            ndp_kept_put(&state[s], place[s], u.n, u.state[s], words.of[NDP_ROUNDING_STATE + s]);
    }
}

NDP_INLINE float flush(float x) { return x < (float)NDP_TINY_MOMENT && x > -(float)NDP_TINY_MOMENT ? 0 : x; }

NDP_INLINE void adamw_loop(const update_part *u) {
    float *restrict w = u->w, *restrict m = u->state[0], *restrict v = u->state[1];
    const float *restrict g = u->g;
    const double *k = u->k;
    const float keep = (float)k[NDP_ADAMW_KEEP], scale = u->clip, eps = (float)k[NDP_ADAMW_EPS];
    const float new1 = (float)k[NDP_ADAMW_NEW1];
    const float old2 = (float)k[NDP_ADAMW_OLD2], new2 = (float)(1 - k[NDP_ADAMW_OLD2]);
    const float rate = (float)k[NDP_ADAMW_RATE], unbias = (float)k[NDP_ADAMW_UNBIAS];
    const int n = u->n;
    SIMD for (int i = 0; i < n; i++) {
        float gi = g[i] * scale;
        float mi = flush(ndp_fused(new1, gi - m[i], m[i]));
        float vi = flush(ndp_fused(old2, v[i], new2 * (gi * gi)));
        w[i] = ndp_fused(w[i], keep, -rate * (mi / ndp_fused(sqrtf(vi), unbias, eps)));
        m[i] = mi;
        v[i] = vi;
    }
}

void NDP_RANGE_KERNEL(adamw)(const ndp_op_call *c, int64_t first, int64_t last) { walk(c, first, last, adamw_loop); }

/* The momentum buffer starts as zeros, which makes the first step b = g. */
NDP_INLINE void sgd_step(const update_part *u, bool with_momentum) {
    float *restrict w = u->w, *restrict b = u->state[0];
    const float *restrict g = u->g;
    const double *k = u->k;
    const float lr = (float)k[NDP_SGD_LR], decay = (float)k[NDP_SGD_DECAY], scale = u->clip;
    const float momentum = (float)k[NDP_SGD_MOMENTUM];
    const int n = u->n;
    SIMD for (int i = 0; i < n; i++) {
        float d = ndp_fused(g[i], scale, decay * w[i]);
        if (with_momentum)
            b[i] = d = flush(ndp_fused(momentum, b[i], d));
        w[i] = ndp_fused(-lr, d, w[i]);
    }
}

NDP_INLINE void sgd_loop(const update_part *u) {
    if (u->k[NDP_SGD_MOMENTUM] != 0)
        sgd_step(u, true);
    else
        sgd_step(u, false);
}

void NDP_RANGE_KERNEL(sgd)(const ndp_op_call *c, int64_t first, int64_t last) { walk(c, first, last, sgd_loop); }

/* The sign of a broken gradient is NaN, not 0. */
NDP_INLINE void lion_loop(const update_part *u) {
    float *restrict w = u->w, *restrict m = u->state[0];
    const float *restrict g = u->g;
    const double *k = u->k;
    const float keep = (float)k[NDP_LION_KEEP], lr = (float)k[NDP_LION_LR], scale = u->clip;
    const float old1 = (float)k[NDP_LION_OLD1], new1 = (float)k[NDP_LION_NEW1];
    const float old2 = (float)k[NDP_LION_OLD2], new2 = (float)k[NDP_LION_NEW2];
    const int n = u->n;
    SIMD for (int i = 0; i < n; i++) {
        float gi = g[i] * scale, mi = m[i];
        float c = ndp_fused(old1, mi, new1 * gi);
        float sign = c > 0 ? 1 : c < 0 ? -1 : c;
        w[i] = ndp_fused(w[i], keep, -lr * sign);
        m[i] = flush(ndp_fused(old2, mi, new2 * gi));
    }
}

void NDP_RANGE_KERNEL(lion)(const ndp_op_call *c, int64_t first, int64_t last) { walk(c, first, last, lion_loop); }

/* Nesterov's momentum. The direction is written where other updates have weights. */
NDP_INLINE void momentum_loop(const update_part *u) {
    float *restrict direction = u->w, *restrict m = u->state[0];
    const float *restrict g = u->g;
    const float ahead = (float)u->k[NDP_MUON_AHEAD], fresh = (float)(1 - u->k[NDP_MUON_MOMENTUM]), scale = u->clip;
    const int n = u->n;
    SIMD for (int i = 0; i < n; i++) {
        float gi = g[i] * scale, mi = flush(ndp_fused(fresh, gi - m[i], m[i]));
        m[i] = mi;
        direction[i] = ndp_fused(ahead, mi - gi, gi);
    }
}

void NDP_RANGE_KERNEL(muon_momentum)(const ndp_op_call *c, int64_t first, int64_t last) {
    walk(c, first, last, momentum_loop);
}

/* The direction is clipped already. */
NDP_INLINE void muon_loop(const update_part *u) {
    float *restrict w = u->w;
    const float *restrict direction = u->g;
    const float keep = (float)u->k[NDP_MUON_KEEP], lr = (float)u->k[NDP_MUON_LR];
    const int n = u->n;
    SIMD for (int i = 0; i < n; i++) w[i] = ndp_fused(w[i], keep, -lr * direction[i]);
}

void NDP_RANGE_KERNEL(muon)(const ndp_op_call *c, int64_t first, int64_t last) { walk(c, first, last, muon_loop); }
