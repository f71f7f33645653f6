/* Which kernels an x86-64 runs. */
#include "base/cpu.h"
#include "ops/cpu/cpu_attention_task.h"
#include "ops/cpu/cpu_delta_rule.h"
#include "ops/cpu/cpu_gemm_kernel.h"
#include "ops/cpu/cpu_rows.h"

#define GENERIC(name) .name = ndp_cpu_##name##_generic,
#define AVX512(name) .name = ndp_cpu_##name##_avx512,

const ndp_row_kernels *ndp_rows_best(void) {
    static const ndp_row_kernels generic = {NDP_RANGE_KERNELS(GENERIC)}, avx512 = {NDP_RANGE_KERNELS(AVX512)};
    return ndp_cpu_has_avx512() ? &avx512 : &generic;
}

const ndp_gemm_kernel *ndp_gemm_kernel_for(ndp_dtype t) {
    static const ndp_gemm_kernel *const of_bf16[] = {[NDP_BF16_LIBRARY] = NULL,
                                                     [NDP_BF16_WIDENED] = &ndp_bgemm_avx512,
                                                     [NDP_BF16_PAIRS] = &ndp_bgemm_avx512bf16,
                                                     [NDP_BF16_TILES] = &ndp_bgemm_amx};
    if (t == NDP_F32)
        return ndp_cpu_has_avx512() ? &ndp_sgemm_avx512 : NULL;
    return of_bf16[ndp_cpu_bf16_way()];
}

/* bf16 is multiplied by its own instructions only where these are faster than those of fp32. */
const ndp_att_kernels *ndp_att_kernels_for(ndp_dtype dtype, float scale) {
    ndp_bf16_way way = dtype == NDP_BF16 && scale > 0 ? ndp_cpu_bf16_way() : NDP_BF16_WIDENED;
    if (way == NDP_BF16_TILES)
        return &ndp_att_amx;
    if (way == NDP_BF16_PAIRS)
        return &ndp_att_avx512bf16;
    return ndp_cpu_has_avx512() ? &ndp_att_avx512 : &ndp_att_generic;
}

const ndp_delta_kernels *ndp_delta_best(void) { return ndp_cpu_has_avx512() ? &ndp_delta_avx512 : &ndp_delta_generic; }
