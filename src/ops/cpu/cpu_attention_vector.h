/* Vectors of LANES floats by the compiler's vector types, the part that is the same on every processor. Included by the
 * cpu_attention_<isa>.c files alone, which define LANES, ZIP_LOW, ZIP_HIGH and then add vec_max, vec_see and vec_exp2.
 */
#ifndef NDP_OPS_CPU_CPU_ATTENTION_VECTOR_H
#define NDP_OPS_CPU_CPU_ATTENTION_VECTOR_H

#include <float.h>
#include <math.h>
#include <stdint.h>

typedef float vf __attribute__((vector_size(LANES * 4), may_alias));
typedef int32_t vi __attribute__((vector_size(LANES * 4), may_alias));
typedef float vf_unaligned __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef int32_t vi_unaligned __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

#define INLINE static inline __attribute__((always_inline))

INLINE vf vec_load(const float *p) { return *(const vf_unaligned *)p; }
INLINE vi vec_load_int(const int32_t *p) { return *(const vi_unaligned *)p; }
INLINE void vec_store(float *p, vf x) { *(vf_unaligned *)p = x; }
INLINE vf vec_set(float x) { return x - (vf){0}; }

INLINE float vec_sum(vf x) {
    float sum = 0;
    for (int i = 0; i < LANES; i++)
        sum += x[i];
    return sum;
}

typedef uint16_t vh __attribute__((vector_size(LANES * 2)));
typedef uint16_t vh_unaligned __attribute__((vector_size(LANES * 2), aligned(2), may_alias));
typedef uint32_t vu __attribute__((vector_size(LANES * 4)));

INLINE vf vec_load_bf16(const uint16_t *p) {
    return (vf)(__builtin_convertvector((vh) * (const vh_unaligned *)p, vu) << 16);
}

/* As ndp_f32_to_bf16: to nearest even, NaN stays NaN. */
INLINE void vec_store_bf16(uint16_t *p, vf x) {
    vu bits = (vu)x, nan = (vu)(x != x);
    vu high = (~nan & ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16)) | (nan & ((bits >> 16) | 0x40));
    *(vh_unaligned *)p = __builtin_convertvector(high, vh);
}

/* 2^f for 0 <= f < 1, minimax with 2^0 = 1 exact; relative error 8e-8, no more than rounding adds. */
INLINE vf vec_exp2_fraction(vf f) {
    vf p = f * 1.867130072e-3f + 9.017030316e-3f;
    p = p * f + 5.579991311e-2f;
    p = p * f + 2.401644502e-1f;
    p = p * f + 6.931513118e-1f;
    return p * f + 1.0f;
}

/* Rows become columns: log2(LANES) perfect shuffles. */
INLINE void vec_transpose(vf r[LANES]) {
    for (int round = 1; round < LANES; round *= 2) {
        vf t[LANES];
#pragma GCC unroll 16
        for (int i = 0; i < LANES / 2; i++) {
            t[2 * i] = __builtin_shufflevector(r[i], r[i + LANES / 2], ZIP_LOW);
            t[2 * i + 1] = __builtin_shufflevector(r[i], r[i + LANES / 2], ZIP_HIGH);
        }
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++)
            r[i] = t[i];
    }
}

#endif
