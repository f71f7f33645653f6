/* What ref kernels share: matrices as dense fp64, and the plain matrix product. */
#ifndef NDP_OPS_REF_H
#define NDP_OPS_REF_H

#include "ops/op.h"

/* C [m,n] (+)= A B in fp64, where A is `a` or its transpose, and B likewise; `scratch` holds ndp_ref_gemm_scratch
 * bytes. The sum over k runs in order. */
void ndp_ref_gemm(const ndp_view *a, bool trans_a, const ndp_view *b, bool trans_b, const ndp_view *c, bool accumulate,
                  void *scratch);
size_t ndp_ref_gemm_scratch(const ndp_view *a, const ndp_view *b, const ndp_view *c);

/* Integer operand, column 0. */
static inline int64_t ndp_ref_int(const ndp_view *v, int64_t r) { return ((const int32_t *)v->data)[r * v->ld]; }

/* v (+)= x, for gradients of parameters. */
static inline void ndp_ref_give(const ndp_view *v, int64_t r, int64_t c, double x, bool accumulate) {
    ndp_view_set(v, r, c, accumulate ? ndp_view_get(v, r, c) + x : x);
}

#endif
