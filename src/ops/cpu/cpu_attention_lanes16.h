/* Vectors of attention and of the delta rule in AVX-512: 16 lanes. */
#ifndef NDP_OPS_CPU_CPU_ATTENTION_LANES16_H
#define NDP_OPS_CPU_CPU_ATTENTION_LANES16_H

#include <immintrin.h>

#define LANES 16
#define ZIP_LOW 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define ZIP_HIGH 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#include "ops/cpu/cpu_attention_vector.h"

/* s > m ? s : m, so that NaN scores do not become the maximum. */
static inline vf vec_max(vf s, vf m) { return (vf)_mm512_max_ps((__m512)s, (__m512)m); }

/* The score where low <= key <= pos, else -inf. */
static inline vf vec_see(vf s, vi low, int32_t key, vi pos) {
    __m512i at = _mm512_set1_epi32(key);
    __mmask16 seen = _mm512_mask_cmple_epi32_mask(_mm512_cmple_epi32_mask((__m512i)low, at), at, (__m512i)pos);
    return (vf)_mm512_mask_blend_ps(seen, _mm512_set1_ps(-INFINITY), (__m512)s);
}

/* 2^x: x = floor + fraction in one instruction each; 2^-inf = 0, NaN stays. */
static inline vf vec_exp2(vf x) {
    vf fraction = (vf)_mm512_reduce_ps((__m512)x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    return (vf)_mm512_scalef_ps((__m512)vec_exp2_fraction(fraction), (__m512)x);
}

#endif
