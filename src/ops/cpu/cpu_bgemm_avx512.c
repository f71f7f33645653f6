/* Matrix products of bf16 in AVX-512 as those of fp32: the numbers are widened while they are packed, which costs
 * nothing beside the products. For processors whose dpbf16ps is not faster (ndp_cpu_bf16_way), or that have none. A
 * step is one k (see cpu_gemm_panels.h). */
#include "ops/cpu/cpu_gemm_block.h"
#include "ops/cpu/cpu_gemm_kernel.h"

#define NUMBER uint16_t

enum { DEPTH = 1 };

static inline __m512 load_steps(const NUMBER *from, int64_t k) { return widened(from, lanes(k)); }

static inline __m512 load_step(const NUMBER *from, int64_t ld, int64_t k, __mmask16 kept) {
    (void)ld, (void)k;
    return widened(from, kept);
}

static inline __m512 multiply_add(__m512 x, __m512 y, __m512 sum) { return _mm512_fmadd_ps(x, y, sum); }

static inline row_sums get_sums(const void *c, ndp_dtype type, __mmask16 left, __mmask16 right) {
    return type == NDP_F32 ? get_fp32(c, left, right) : get_bf16(c, left, right);
}

/* Round to nearest even; NaN stays NaN. */
static inline __m256i narrowed(__m512 x) {
    __m512i bits = _mm512_castps_si512(x), odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    rounded = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
}

static inline void put_sums(void *c, ndp_dtype type, __mmask16 left, __mmask16 right, row_sums x) {
    if (type == NDP_F32) {
        put_fp32(c, left, right, x);
    } else {
        _mm256_mask_storeu_epi16(c, left, narrowed(x.left));
        _mm256_mask_storeu_epi16((NUMBER *)c + LANES, right, narrowed(x.right));
    }
}

#include "ops/cpu/cpu_gemm_panels.h"

const ndp_gemm_kernel ndp_bgemm_avx512 = {scratch_bytes, most_bytes, run};
