/* The plain matrix product of ref kernels: on matrices copied to dense fp64. */
#ifndef NDP_OPS_REF_REF_GEMM_H
#define NDP_OPS_REF_REF_GEMM_H

#include "tensor/view.h"

/* C [m,n] (+)= A B in fp64, where A is `a` or its transpose, and B likewise; `scratch` holds ndp_ref_gemm_scratch
 * bytes. The sum over k runs in order. */
void ndp_ref_gemm(const ndp_view *a, bool trans_a, const ndp_view *b, bool trans_b, const ndp_view *c, bool accumulate,
                  void *scratch);
size_t ndp_ref_gemm_scratch(const ndp_view *a, const ndp_view *b, const ndp_view *c);

#endif
