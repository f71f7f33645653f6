/* Our own matrix products: one table an instruction set. cpu_gemm.c chooses between them and oneDNN. All storage orders
 * are as fast as the best one; the kernels allocate nothing, and their results do not depend on the number of threads.
 */
#ifndef NDP_OPS_CPU_CPU_GEMM_KERNEL_H
#define NDP_OPS_CPU_CPU_GEMM_KERNEL_H

#include "ops/cpu/cpu_gemm.h"

typedef struct ndp_gemm_kernel {
    size_t (*scratch)(const ndp_gemm_shape *shape); /* bytes */
    /* a, b, c: of the shape's types. `scratch` is 64-byte aligned. */
    void (*run)(const ndp_gemm_shape *shape, const void *a, const void *b, void *c, void *scratch);
} ndp_gemm_kernel;

extern const ndp_gemm_kernel ndp_sgemm_avx512;     /* fp32 */
extern const ndp_gemm_kernel ndp_bgemm_avx512;     /* bf16, widened to fp32 */
extern const ndp_gemm_kernel ndp_bgemm_avx512bf16; /* bf16, summed in fp32; by dpbf16ps */
extern const ndp_gemm_kernel ndp_bgemm_amx;        /* bf16, summed in fp32; by tiles */

#endif
