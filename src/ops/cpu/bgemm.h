/* Matrix products of bf16 by AMX tiles, summed in fp32: all storage orders, without any allocation, and with results
 * that do not depend on the number of threads. ops/gemm.h chooses between it and others. */
#ifndef NDP_OPS_CPU_BGEMM_H
#define NDP_OPS_CPU_BGEMM_H

#include "ops/gemm.h"

size_t ndp_bgemm_scratch(const ndp_gemm_shape *shape);
/* c: fp32 or bf16, as the shape says. `scratch` is 64-byte aligned. */
void ndp_bgemm_run(const ndp_gemm_shape *shape, const uint16_t *a, const uint16_t *b, void *c, void *scratch);

#endif
