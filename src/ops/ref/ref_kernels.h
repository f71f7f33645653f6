/* What ref kernels share. */
#ifndef NDP_OPS_REF_REF_KERNELS_H
#define NDP_OPS_REF_REF_KERNELS_H

#include "ops/shape.h"

#define NDP_REF_DECLARE(op) extern const ndp_kernel ndp_ref_##op;
NDP_KERNEL_OPS(NDP_REF_DECLARE)
#undef NDP_REF_DECLARE

/* One element of operand i. */
static inline double ndp_ref_in(const ndp_op_call *c, int i, int64_t t, int64_t j) {
    return ndp_view_get(&c->in[i], t, j);
}

/* An op as a formula: element (t, j) of its output. In place it reads no other element of that operand. */
typedef double ndp_ref_formula(const ndp_op_call *c, int64_t t, int64_t j);
/* Makes all elements of output 0, or adds them where attr.accumulate says so. NDP_OK. */
ndp_status ndp_ref_each(const ndp_op_call *c, ndp_ref_formula *formula);

/* The kernel of an op whose formula has its name. */
#define NDP_REF_EACH(op)                                                                                               \
    static ndp_status run_##op(const ndp_op_call *c) { return ndp_ref_each(c, op); }                                   \
    const ndp_kernel ndp_ref_##op = {.run = run_##op};

/* What an RMSNorm multiplies column j by. */
static inline double ndp_ref_norm_weight(const ndp_op_call *c, const ndp_view *w, int64_t j) {
    return ndp_view_get(w, 0, j) + c->attr->unit_offset;
}

/* Kernels that need nothing faster: `cpu` runs them too. */
ndp_status ndp_ref_run_kv_append(const ndp_op_call *c);
ndp_status ndp_ref_run_reduce_sum(const ndp_op_call *c);
ndp_status ndp_ref_run_count_valid(const ndp_op_call *c);
ndp_status ndp_ref_run_route_order(const ndp_op_call *c);
ndp_status ndp_ref_run_route_exchange(const ndp_op_call *c);
size_t ndp_ref_exchange_scratch(const ndp_op_call *c);
ndp_status ndp_ref_run_choice_counts(const ndp_op_call *c);
ndp_status ndp_ref_run_router_bias_step(const ndp_op_call *c);
ndp_status ndp_ref_run_row_score(const ndp_op_call *c);
ndp_status ndp_ref_run_document_sums(const ndp_op_call *c);
ndp_status ndp_ref_run_pair_loss(const ndp_op_call *c);
ndp_status ndp_ref_run_pair_rows(const ndp_op_call *c);
ndp_status ndp_ref_run_zero(const ndp_op_call *c);
ndp_status ndp_ref_run_loss_scale(const ndp_op_call *c);
ndp_status ndp_ref_run_clip_factor(const ndp_op_call *c);

#endif
