/* Matrix products by oneDNN, for cpu_gemm.c: plans that live as long as the process. */
#ifndef NDP_OPS_CPU_CPU_GEMM_LIBRARY_H
#define NDP_OPS_CPU_CPU_GEMM_LIBRARY_H

#include "ops/cpu/cpu_gemm.h"

typedef struct ndp_library_plan ndp_library_plan;

/* A plan for a shape, whose split does not count, and the scratch memory of a run. NDP_ENOTSUP: the library has none.
 */
ndp_status ndp_library_plan_make(const ndp_gemm_shape *s, ndp_library_plan **out, size_t *scratch_bytes);
/* The calling thread will run it: no step then makes what that takes. NDP_ENOMEM. */
ndp_status ndp_library_use(ndp_library_plan *plan);
void ndp_library_run(ndp_library_plan *plan, const ndp_gemm_shape *s, const void *a, const void *b, void *c,
                     void *scratch);

#endif
