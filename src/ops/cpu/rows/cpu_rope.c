/* rope. */
#include "ops/cpu/rows/range_kernel.h"

/* One head: (a, b) -> (a cos - b sin, b cos + a sin), a and b its halves. */
NDP_INLINE void rotate(ndp_dtype type, int64_t half, void *a, void *b, const float *cosine, const float *sine,
                       float sign) {
    SIMD for (int64_t i = 0; i < half; i++) {
        float u = ndp_ld(a, type, i), v = ndp_ld(b, type, i), s = sign * sine[i];
        ndp_st(a, type, i, u * cosine[i] - v * s);
        ndp_st(b, type, i, v * cosine[i] + u * s);
    }
}

/* The same where a and b are neighbours. */
NDP_INLINE void rotate_pairs(ndp_dtype type, int64_t half, void *x, const float *cosine, const float *sine,
                             float sign) {
    SIMD for (int64_t i = 0; i < half; i++) {
        float u = ndp_ld(x, type, 2 * i), v = ndp_ld(x, type, 2 * i + 1), s = sign * sine[i];
        ndp_st(x, type, 2 * i, u * cosine[i] - v * s);
        ndp_st(x, type, 2 * i + 1, v * cosine[i] + u * s);
    }
}

void NDP_RANGE_KERNEL(rope)(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *x = &c->in[0], *pos = &c->in[1], *table = &c->in[2];
    int64_t half = table->cols / 2, heads = (int64_t)c->attr->heads + c->attr->kv_heads, d = c->attr->head_dim;
    float sign = c->attr->inverse ? -1.0f : 1.0f;
    for (int64_t t = first; t < last; t++) {
        const float *angle = ndp_at(table, ((const int32_t *)pos->data)[t * pos->ld], 0);
        for (int64_t h = 0, at = c->attr->skipped; h < heads; h++, at += d)
            if (c->attr->neighbours)
                NDP_BY_TYPE(x->dtype, rotate_pairs, half, ndp_at(x, t, at), angle, angle + half, sign);
            else
                NDP_BY_TYPE(x->dtype, rotate, half, ndp_at(x, t, at), ndp_at(x, t, at + half), angle, angle + half,
                            sign);
    }
}
