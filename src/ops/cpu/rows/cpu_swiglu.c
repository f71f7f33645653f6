/* swiglu, swiglu_clipped, and their gradients. */
#include "ops/cpu/rows/range_kernel.h"

NDP_INLINE void swiglu_row(ndp_dtype type, int64_t n, const void *gate, const void *up, void *a) {
    SIMD for (int64_t i = 0; i < n; i++) {
        float g = ndp_ld(gate, type, i);
        ndp_st(a, type, i, g * ndp_vsigmoidf(g) * ndp_ld(up, type, i));
    }
}

void NDP_RANGE_KERNEL(swiglu)(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *gu = &c->in[0], *a = &c->out[0];
    for (int64_t t = first; t < last; t++)
        NDP_BY_TYPE(gu->dtype, swiglu_row, a->cols, ndp_at(gu, t, 0), ndp_at(gu, t, a->cols), ndp_at(a, t, 0));
}

NDP_INLINE void swiglu_bwd_row(ndp_dtype type, int64_t n, const void *da, const void *gate, const void *up, void *dgate,
                               void *dup) {
    SIMD for (int64_t i = 0; i < n; i++) {
        float g = ndp_ld(gate, type, i), d = ndp_ld(da, type, i), u = ndp_ld(up, type, i), s = ndp_vsigmoidf(g);
        ndp_st(dgate, type, i, d * u * s * (1.0f + g * (1.0f - s)));
        ndp_st(dup, type, i, d * g * s);
    }
}

void NDP_RANGE_KERNEL(swiglu_bwd)(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *da = &c->in[0], *gu = &c->in[1], *dgu = &c->out[0];
    for (int64_t t = first; t < last; t++)
        NDP_BY_TYPE(da->dtype, swiglu_bwd_row, da->cols, ndp_at(da, t, 0), ndp_at(gu, t, 0), ndp_at(gu, t, da->cols),
                    ndp_at(dgu, t, 0), ndp_at(dgu, t, da->cols));
}

static float within(float x, float low, float high) { return x < low ? low : x > high ? high : x; }

NDP_INLINE void clipped_row(ndp_dtype type, int64_t n, const void *gu, float by, float cap, void *a) {
    SIMD for (int64_t i = 0; i < n; i++) {
        float g = ndp_ld(gu, type, 2 * i), u = ndp_ld(gu, type, 2 * i + 1);
        g = g > cap ? cap : g;
        ndp_st(a, type, i, (within(u, -cap, cap) + 1.0f) * g * ndp_vsigmoidf(by * g));
    }
}

void NDP_RANGE_KERNEL(swiglu_clipped)(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *gu = &c->in[0], *a = &c->out[0];
    for (int64_t t = first; t < last; t++)
        NDP_BY_TYPE(gu->dtype, clipped_row, a->cols, ndp_at(gu, t, 0), (float)c->attr->scale, (float)c->attr->cap,
                    ndp_at(a, t, 0));
}

NDP_INLINE void clipped_bwd_row(ndp_dtype type, int64_t n, const void *da, const void *gu, float by, float cap,
                                void *dgu) {
    SIMD for (int64_t i = 0; i < n; i++) {
        float gate = ndp_ld(gu, type, 2 * i), up = ndp_ld(gu, type, 2 * i + 1), d = ndp_ld(da, type, i);
        float g = gate > cap ? cap : gate, s = ndp_vsigmoidf(by * g);
        float dg = d * (within(up, -cap, cap) + 1.0f) * s * (1.0f + by * g * (1.0f - s)), du = d * g * s;
        ndp_st(dgu, type, 2 * i, gate > cap ? 0.0f : dg);
        ndp_st(dgu, type, 2 * i + 1, up > cap || up < -cap ? 0.0f : du);
    }
}

void NDP_RANGE_KERNEL(swiglu_clipped_bwd)(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *da = &c->in[0];
    for (int64_t t = first; t < last; t++)
        NDP_BY_TYPE(da->dtype, clipped_bwd_row, da->cols, ndp_at(da, t, 0), ndp_at(&c->in[1], t, 0),
                    (float)c->attr->scale, (float)c->attr->cap, ndp_at(&c->out[0], t, 0));
}
