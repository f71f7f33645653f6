/* Our own matrix products: one table an instruction set. cpu_gemm.c chooses between them and oneDNN. All storage orders
 * are as fast as the best one; the kernels allocate nothing, and their results do not depend on the number of threads.
 */
#ifndef NDP_OPS_CPU_CPU_GEMM_KERNEL_H
#define NDP_OPS_CPU_CPU_GEMM_KERNEL_H

#include "ops/cpu/cpu_gemm.h"

typedef struct ndp_gemm_kernel {
    size_t (*scratch)(const ndp_gemm_shape *shape); /* bytes */
    size_t (*most)(const ndp_gemm_shape *shape);    /* bytes for every product that is no larger, by one thread */
    /* a, b, c: of the shape's types. `scratch` is 64-byte aligned. */
    void (*run)(const ndp_gemm_shape *shape, const void *a, const void *b, void *c, void *scratch);
} ndp_gemm_kernel;

extern const ndp_gemm_kernel ndp_sgemm_avx512;     /* fp32 */
extern const ndp_gemm_kernel ndp_bgemm_avx512;     /* bf16, widened to fp32 */
extern const ndp_gemm_kernel ndp_bgemm_avx512bf16; /* bf16, summed in fp32; by dpbf16ps */
extern const ndp_gemm_kernel ndp_bgemm_amx;        /* bf16, summed in fp32; by tiles */

/* What products with a plan (cpu_gemm.c) and without one (cpu_gemm_tile.c) share. */

/* The kernel of our own for operands of that type (cpu_choice_x86.c, cpu_choice_arm.c); NULL: this processor has only
 * the library's. */
const ndp_gemm_kernel *ndp_gemm_kernel_for(ndp_dtype t);
/* Floats of a matrix, to a multiple of 64 bytes. */
static inline size_t ndp_gemm_floats(int64_t rows, int64_t cols) { return ((size_t)(rows * cols) + 15) / 16 * 16; }
/* An operand from its number l of k on. */
static inline const char *ndp_gemm_from_k(const void *x, ndp_dtype type, int64_t ld, bool rows_are_k, int64_t l) {
    return (const char *)x + (size_t)(l * (rows_are_k ? ld : 1)) * ndp_dtype_size(type);
}
static inline const char *ndp_gemm_a_from(const ndp_gemm_shape *s, const void *a, int64_t l) {
    return ndp_gemm_from_k(a, s->a, s->lda, s->trans_a, l);
}
static inline const char *ndp_gemm_b_from(const ndp_gemm_shape *s, const void *b, int64_t l) {
    return ndp_gemm_from_k(b, s->b, s->ldb, !s->trans_b, l);
}
/* C += x, which is [m][n], both in fp32. */
static inline void ndp_gemm_add(int64_t m, int64_t n, const float *restrict x, float *restrict c, int64_t ldc) {
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            c[i * ldc + j] += x[i * n + j];
}
/* C (+)= x + y, which are [m][n]; y is overwritten. */
void ndp_gemm_add_parts(const ndp_gemm_shape *s, float *x, float *y, char *c);
/* What oneDNN uses when the calling thread calls it next. */
void ndp_gemm_set_threads(int threads);
/* To the thread sanitizer, which does not see what the library, masked vectors and tiles access. */
void ndp_gemm_announce(const ndp_gemm_shape *s, const void *a, const void *b, const void *c);

#endif
