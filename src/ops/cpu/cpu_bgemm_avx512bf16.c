/* Matrix products of bf16 in AVX-512, summed in fp32: a step is two k's, which dpbf16ps multiplies and adds up (see
 * cpu_gemm_panels.h). On Zen 4 and 5 at twice the rate of fp32. */
#include "ops/cpu/cpu_gemm_block.h"
#include "ops/cpu/cpu_gemm_kernel.h"

#define NUMBER uint16_t

enum { DEPTH = 2 };

static inline __m512 load_steps(const NUMBER *from, int64_t k) {
    return _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(halves(k), from));
}

static inline __m512 load_step(const NUMBER *from, int64_t ld, int64_t k, __mmask16 kept) {
    return load_paired(from, kept, from + ld, k > 1 ? kept : 0);
}

static inline __m512 multiply_add(__m512 x, __m512 y, __m512 sum) {
    return _mm512_dpbf16_ps(sum, (__m512bh)x, (__m512bh)y);
}

static inline row_sums get_sums(const void *c, ndp_dtype type, __mmask16 left, __mmask16 right) {
    return type == NDP_F32 ? get_fp32(c, left, right) : get_bf16(c, left, right);
}

static inline void put_sums(void *c, ndp_dtype type, __mmask16 left, __mmask16 right, row_sums x) {
    if (type == NDP_F32)
        put_fp32(c, left, right, x);
    else
        _mm512_mask_storeu_epi16(c, (__mmask32)right << LANES | left, (__m512i)_mm512_cvtne2ps_pbh(x.right, x.left));
}

#include "ops/cpu/cpu_gemm_panels.h"

const ndp_gemm_kernel ndp_bgemm_avx512bf16 = {scratch_bytes, most_bytes, run};
