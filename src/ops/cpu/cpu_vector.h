/* What row kernels are written with: loads and stores that know the storage type, and an exponential that compilers
 * turn into vectors of any width. Storage types are constants after inlining, so that inner loops hold no branch. */
#ifndef NDP_OPS_CPU_CPU_VECTOR_H
#define NDP_OPS_CPU_CPU_VECTOR_H

#include "ops/op.h"

#define NDP_INLINE static inline __attribute__((always_inline))

NDP_INLINE float ndp_ld(const void *p, ndp_dtype t, int64_t i) {
    return t == NDP_F32 ? ((const float *)p)[i] : ndp_bf16_to_f32(((const uint16_t *)p)[i]);
}

NDP_INLINE void ndp_st(void *p, ndp_dtype t, int64_t i, float x) {
    if (t == NDP_F32)
        ((float *)p)[i] = x;
    else
        ((uint16_t *)p)[i] = ndp_f32_to_bf16(x);
}

/* a * b + c, rounded once where the processor can. Of g * scale + k * d compilers fuse either product, and not the same
 * one in vectors as in the elements that are left over: where that matters, the file is compiled without contraction.
 */
NDP_INLINE float ndp_fused(float a, float b, float c) {
#if defined __FMA__ || defined __ARM_FEATURE_FMA
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

/* Calls f(type, ...) with the storage type as a constant. */
#define NDP_BY_TYPE(t, f, ...)                                                                                         \
    do {                                                                                                               \
        if ((t) == NDP_F32)                                                                                            \
            f(NDP_F32, __VA_ARGS__);                                                                                   \
        else                                                                                                           \
            f(NDP_BF16, __VA_ARGS__);                                                                                  \
    } while (0)

/* Calls f(from, to, ...), both constants. */
#define NDP_BY_TYPES(from, to, f, ...)                                                                                 \
    do {                                                                                                               \
        if ((from) == NDP_F32 && (to) == NDP_F32)                                                                      \
            f(NDP_F32, NDP_F32, __VA_ARGS__);                                                                          \
        else if ((from) == NDP_F32)                                                                                    \
            f(NDP_F32, NDP_BF16, __VA_ARGS__);                                                                         \
        else if ((to) == NDP_F32)                                                                                      \
            f(NDP_BF16, NDP_F32, __VA_ARGS__);                                                                         \
        else                                                                                                           \
            f(NDP_BF16, NDP_BF16, __VA_ARGS__);                                                                        \
    } while (0)

NDP_INLINE void *ndp_at(const ndp_view *v, int64_t r, int64_t c) {
    return (char *)v->data + (size_t)(r * v->ld + c) * (v->dtype == NDP_BF16 ? 2 : 4);
}

/* e^x to 2 ulp. Results below the smallest normal float are 0, above the largest infinity; NaN stays NaN.
 * x = n ln 2 + r, |r| <= ln 2 / 2; the polynomial interpolates (e^r - 1 - r) / r^2 at Chebyshev nodes (error 1e-8). */
NDP_INLINE float ndp_vexpf(float x) {
    const float to_int = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer in the low bits */
    float bounded = x < -88.0f ? -88.0f : x > 89.0f ? 89.0f : x;
    float shifted = bounded * 1.44269504f + to_int;
    uint32_t n_bits;
    memcpy(&n_bits, &shifted, 4);
    float n = shifted - to_int;
    float r = (bounded - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;
    float p = 0x1.6d113ep-10f;
    p = p * r + 0x1.120ba2p-7f;
    p = p * r + 0x1.55551ap-5f;
    p = p * r + 0x1.5554dcp-3f;
    p = p * r + 0.5f;
    p = p * r * r + r + 1.0f;
    /* 2^n as two factors: n reaches from -126 to 128. (As an array they would keep gcc from making vectors.) */
    int32_t whole = (int32_t)(n_bits - 0x4b400000u), half = whole >> 1;
    uint32_t low_bits = (uint32_t)(half + 127) << 23, high_bits = (uint32_t)(whole - half + 127) << 23;
    float low, high;
    memcpy(&low, &low_bits, 4);
    memcpy(&high, &high_bits, 4);
    p = p * low * high;
    p = x < -87.3365f ? 0.0f : p;
    return x > 88.72284f ? __builtin_inff() : p;
}

NDP_INLINE float ndp_vsigmoidf(float x) { return 1.0f / (1.0f + ndp_vexpf(-x)); }

/* (tanh(x) / x - 1) / x^2 for |x| < 0.625, z = x^2, interpolated at Chebyshev nodes (tanh to 2e-8): there 1 - 2 / (1 +
 * e^2x) would cancel. As a macro, for floats and vectors of them. */
#define NDP_TANH_SERIES(z)                                                                                             \
    (((((z) * -0x1.9017fcp-8f + 0x1.581fa6p-6f) * (z)-0x1.b928e0p-5f) * (z) + 0x1.110e2ep-3f) * (z)-0x1.555552p-2f)
#define NDP_TANH_SMALL 0.625f

/* tanh(x) to 3 ulp. */
NDP_INLINE float ndp_vtanhf(float x) {
    float size = x < 0 ? -x : x, z = x * x;
    float far = 1.0f - 2.0f / (1.0f + ndp_vexpf(2.0f * size));
    float near = x + x * z * NDP_TANH_SERIES(z);
    far = x < 0 ? -far : far;
    return size < NDP_TANH_SMALL ? near : far;
}

#endif
