/* Matrix products of fp32 in AVX-512: a step is one k (see cpu_gemm_panels.h). */
#include "ops/cpu/cpu_gemm_block.h"
#include "ops/cpu/cpu_gemm_kernel.h"

#define NUMBER float

enum { DEPTH = 1 };

static inline __m512 load_steps(const NUMBER *from, int64_t k) { return _mm512_maskz_loadu_ps(lanes(k), from); }

static inline __m512 load_step(const NUMBER *from, int64_t ld, int64_t k, __mmask16 kept) {
    (void)ld, (void)k;
    return _mm512_maskz_loadu_ps(kept, from);
}

static inline __m512 multiply_add(__m512 x, __m512 y, __m512 sum) { return _mm512_fmadd_ps(x, y, sum); }

static inline row_sums get_sums(const void *c, ndp_dtype type, __mmask16 left, __mmask16 right) {
    (void)type;
    return get_fp32(c, left, right);
}

static inline void put_sums(void *c, ndp_dtype type, __mmask16 left, __mmask16 right, row_sums x) {
    (void)type;
    put_fp32(c, left, right, x);
}

#include "ops/cpu/cpu_gemm_panels.h"

const ndp_gemm_kernel ndp_sgemm_avx512 = {scratch_bytes, most_bytes, run};
