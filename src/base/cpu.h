/* What this process may use of the processor. */
#ifndef NDP_BASE_CPU_H
#define NDP_BASE_CPU_H

#include "base/status.h"

/* Cores that the scheduler lets this process run on (affinity), at least 1. */
int ndp_cpu_cores(void);

/* What the kernels ask for. The environment variable NDP_ISA=generic|avx512|avx512_bf16|amx_bf16 lowers the answers,
 * never raises them, so that tests reach every path; another word in it changes nothing. */
bool ndp_cpu_has_avx512(void);      /* F, BW, DQ, VL */
bool ndp_cpu_has_avx512_bf16(void); /* these and dpbf16ps */
bool ndp_cpu_has_amx_bf16(void);    /* these and tiles of bf16, whose use the system has granted to the process */

/* The highest of these, as NDP_ISA calls it. */
const char *ndp_cpu_isa(void);

#endif
