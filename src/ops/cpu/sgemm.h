/* fp32 matrix products in AVX-512: all storage orders at the speed of the best one, without any allocation, and with
 * results that do not depend on the number of threads. ops/gemm.h chooses between it and oneDNN. */
#ifndef NDP_OPS_CPU_SGEMM_H
#define NDP_OPS_CPU_SGEMM_H

#include "ops/gemm.h"

size_t ndp_sgemm_scratch(const ndp_gemm_shape *shape);
/* `scratch` is 64-byte aligned. */
void ndp_sgemm_run(const ndp_gemm_shape *shape, const float *a, const float *b, float *c, void *scratch);

#endif
