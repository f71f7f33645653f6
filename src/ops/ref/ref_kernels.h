/* What ref kernels share. */
#ifndef NDP_OPS_REF_REF_KERNELS_H
#define NDP_OPS_REF_REF_KERNELS_H

#include "ops/shape.h"

#define NDP_REF_DECLARE(op) extern const ndp_kernel ndp_ref_##op;
NDP_KERNEL_OPS(NDP_REF_DECLARE)
#undef NDP_REF_DECLARE

/* v (+)= x, for gradients of parameters. */
static inline void ndp_ref_give(const ndp_view *v, int64_t r, int64_t c, double x, bool accumulate) {
    ndp_view_set(v, r, c, accumulate ? ndp_view_get(v, r, c) + x : x);
}

/* Kernels that need nothing faster: `cpu` runs them too. */
ndp_status ndp_ref_run_kv_append(const ndp_op_call *c);
ndp_status ndp_ref_run_reduce_sum(const ndp_op_call *c);
ndp_status ndp_ref_run_count_valid(const ndp_op_call *c);
ndp_status ndp_ref_run_zero(const ndp_op_call *c);
ndp_status ndp_ref_run_loss_scale(const ndp_op_call *c);
ndp_status ndp_ref_run_clip_factor(const ndp_op_call *c);

#endif
