/* Which kernels an aarch64 runs: products are oneDNN's, and what is written in vectors of four lanes uses NEON. */
#include "base/cpu.h"
#include "ops/cpu/cpu_attention_task.h"
#include "ops/cpu/cpu_delta_rule.h"
#include "ops/cpu/cpu_gemm_kernel.h"
#include "ops/cpu/cpu_rows.h"

#define GENERIC(name) .name = ndp_cpu_##name##_generic,
#define SVE(name) .name = ndp_cpu_##name##_sve,

const ndp_row_kernels *ndp_rows_best(void) {
    static const ndp_row_kernels generic = {NDP_RANGE_KERNELS(GENERIC)}, sve = {NDP_RANGE_KERNELS(SVE)};
    return ndp_cpu_has_sve() ? &sve : &generic;
}

const ndp_gemm_kernel *ndp_gemm_kernel_for(ndp_dtype t) {
    (void)t;
    return NULL;
}

const ndp_att_kernels *ndp_att_kernels_for(ndp_dtype dtype, float scale) {
    (void)dtype, (void)scale;
    return &ndp_att_generic;
}

const ndp_delta_kernels *ndp_delta_best(void) { return &ndp_delta_generic; }
