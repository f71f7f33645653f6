/* What this process may use of the processor. */
#ifndef NDP_BASE_CPU_H
#define NDP_BASE_CPU_H

#include "base/status.h"

/* Cores that the scheduler lets this process run on (affinity), at least 1. */
int ndp_cpu_cores(void);

/* A number that processes have in common if they run under one kernel and may use the same cores, and no others do. */
uint64_t ndp_cpu_place(void);

/* Each level includes those before it. */
typedef enum ndp_isa {
    NDP_ISA_GENERIC,
    NDP_ISA_AVX512,      /* F, BW, DQ, VL */
    NDP_ISA_AVX512_BF16, /* and dpbf16ps */
    NDP_ISA_AMX_BF16,    /* and tiles of bf16, whose use the system has granted to the process */
} ndp_isa;

/* Whether the processor has this level, whatever NDP_ISA says. */
bool ndp_cpu_supports(ndp_isa isa);

/* What the kernels ask for. The environment variable NDP_ISA=generic|avx512|avx512_bf16|amx_bf16 lowers the answers,
 * never raises them, so that tests reach every path; dpbf16ps is avx512_bf16 with products by pairs (below). Another
 * word changes nothing. */
bool ndp_cpu_has_avx512(void);
bool ndp_cpu_has_avx512_bf16(void);
bool ndp_cpu_has_amx_bf16(void);

/* "Intel(R) Xeon(R) Processor, family 6 model 207" into `out`, which is returned. Virtual machines often name no model.
 */
enum { NDP_CPU_NAME = 96 };
const char *ndp_cpu_name(char out[NDP_CPU_NAME]);

/* The highest of these, as NDP_ISA calls it. */
const char *ndp_cpu_isa(void);

/* How matrix products of bf16 are made, of the ways that the level has. The choice goes by vendor and model, never by
 * timing: results must not depend on a measurement. */
typedef enum ndp_bf16_way {
    NDP_BF16_LIBRARY, /* no kernels of our own, below NDP_ISA_AVX512: oneDNN's of fp32 */
    NDP_BF16_WIDENED, /* as fp32, to which it is widened while it is packed */
    NDP_BF16_PAIRS,   /* by dpbf16ps, where it is known to be faster; everywhere with NDP_ISA=dpbf16ps */
    NDP_BF16_TILES    /* by AMX */
} ndp_bf16_way;
ndp_bf16_way ndp_cpu_bf16_way(void);
/* "widened to fp32" */
const char *ndp_cpu_bf16_way_text(void);

#endif
