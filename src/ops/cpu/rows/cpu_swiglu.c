/* swiglu, swiglu_bwd. */
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
