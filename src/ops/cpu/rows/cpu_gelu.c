/* gelu, gelu_erf, geglu and their gradients. */
#include "ops/cpu/rows/range_kernel.h"

/* gelu(x) = x sigmoid(2 u) with u = sqrt(2 / pi) (x + 0.044715 x^3), as 0.5 (1 + tanh u) = sigmoid(2 u); *slope: its
 * derivative. */
NDP_INLINE float gelu_of(float x, float *slope) {
    const float by = 1.5957691216f, cube = 0.044715f; /* 2 sqrt(2 / pi) */
    float s = 1.0f / (1.0f + ndp_vexpf(-by * (x + cube * x * x * x)));
    *slope = s + x * s * (1.0f - s) * by * (1.0f + 3.0f * cube * x * x);
    return x * s;
}

/* The same of x Phi(x), Phi the normal distribution: erfc(t) = e^(t p(t)) to 5e-10 for t = |x| / sqrt(2) below 6.5, and
 * 4e-20 there; p is a fit by Lawson's algorithm. */
NDP_INLINE float gelu_erf_of(float x, float *slope) {
    float t = 0.70710678f * (x < 0 ? -x : x), p = -0x1.1c7d48p-20f;
    p = p * t + 0x1.4c3368p-16f;
    p = p * t - 0x1.4f7b44p-13f;
    p = p * t + 0x1.7a0c14p-11f;
    p = p * t - 0x1.cfc73ap-10f;
    p = p * t + 0x1.d8186ap-13f;
    p = p * t + 0x1.39797ap-6f;
    p = p * t - 0x1.a4f854p-4f;
    p = p * t - 0x1.45f2f2p-1f;
    p = p * t - 0x1.20dd76p+0f;
    float tail = t < 6.5f ? 0.5f * ndp_vexpf(t * p) : 0.0f, below = x < 0 ? tail : 1.0f - tail;
    *slope = below + x * 0.39894228f * ndp_vexpf(-0.5f * x * x);
    return x * below;
}

/* Rows of the functions, of which each is written once for all forms. */
#define PLAIN(name)                                                                                                    \
    NDP_INLINE void name##_row(ndp_dtype type, int64_t n, const void *x, void *a) {                                    \
        SIMD for (int64_t i = 0; i < n; i++) {                                                                         \
            float slope;                                                                                               \
            ndp_st(a, type, i, name##_of(ndp_ld(x, type, i), &slope));                                                 \
        }                                                                                                              \
    }                                                                                                                  \
    void NDP_RANGE_KERNEL(name)(const ndp_op_call *c, int64_t first, int64_t last) {                                   \
        const ndp_view *x = &c->in[0];                                                                                 \
        for (int64_t t = first; t < last; t++)                                                                         \
            NDP_BY_TYPE(x->dtype, name##_row, x->cols, ndp_at(x, t, 0), ndp_at(&c->out[0], t, 0));                     \
    }                                                                                                                  \
    NDP_INLINE void name##_bwd_row(ndp_dtype type, int64_t n, const void *da, const void *x, void *dx) {               \
        SIMD for (int64_t i = 0; i < n; i++) {                                                                         \
            float slope;                                                                                               \
            name##_of(ndp_ld(x, type, i), &slope);                                                                     \
            ndp_st(dx, type, i, ndp_ld(da, type, i) * slope);                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    void NDP_RANGE_KERNEL(name##_bwd)(const ndp_op_call *c, int64_t first, int64_t last) {                             \
        const ndp_view *x = &c->in[1];                                                                                 \
        for (int64_t t = first; t < last; t++)                                                                         \
            NDP_BY_TYPE(x->dtype, name##_bwd_row, x->cols, ndp_at(&c->in[0], t, 0), ndp_at(x, t, 0),                   \
                        ndp_at(&c->out[0], t, 0));                                                                     \
    }

PLAIN(gelu)
PLAIN(gelu_erf)

NDP_INLINE void geglu_row(ndp_dtype type, int64_t n, const void *gate, const void *up, void *a) {
    SIMD for (int64_t i = 0; i < n; i++) {
        float slope, g = gelu_of(ndp_ld(gate, type, i), &slope);
        ndp_st(a, type, i, g * ndp_ld(up, type, i));
    }
}

void NDP_RANGE_KERNEL(geglu)(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *gu = &c->in[0], *a = &c->out[0];
    for (int64_t t = first; t < last; t++)
        NDP_BY_TYPE(gu->dtype, geglu_row, a->cols, ndp_at(gu, t, 0), ndp_at(gu, t, a->cols), ndp_at(a, t, 0));
}

NDP_INLINE void geglu_bwd_row(ndp_dtype type, int64_t n, const void *da, const void *gate, const void *up, void *dgate,
                              void *dup) {
    SIMD for (int64_t i = 0; i < n; i++) {
        float slope, g = gelu_of(ndp_ld(gate, type, i), &slope), d = ndp_ld(da, type, i);
        ndp_st(dgate, type, i, d * ndp_ld(up, type, i) * slope);
        ndp_st(dup, type, i, d * g);
    }
}

void NDP_RANGE_KERNEL(geglu_bwd)(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *da = &c->in[0], *gu = &c->in[1], *dgu = &c->out[0];
    for (int64_t t = first; t < last; t++)
        NDP_BY_TYPE(da->dtype, geglu_bwd_row, da->cols, ndp_at(da, t, 0), ndp_at(gu, t, 0), ndp_at(gu, t, da->cols),
                    ndp_at(dgu, t, 0), ndp_at(dgu, t, da->cols));
}
