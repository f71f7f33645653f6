/* What the rules and kernels of ops share. In shapes an absent optional operand has no rows. */
#ifndef NDP_OPS_SHAPE_H
#define NDP_OPS_SHAPE_H

#include "ops/op.h"

/* Shapes come from the builder, so a mismatch is our bug. */
#define NDP_SHAPE_CHECK(cond, ...)                                                                                     \
    do {                                                                                                               \
        if (!(cond))                                                                                                   \
            return NDP_FAIL(NDP_EBUG, __VA_ARGS__);                                                                    \
    } while (0)

#define NDP_SHAPE "[%lld,%lld] %s"
#define NDP_SHAPE_ARGS(v) (long long)(v).rows, (long long)(v).cols, ndp_dtype_name((v).dtype)

/* Two views of the same extents and type; `op` names the op in the message. */
#define NDP_SHAPE_SAME(op, a, b)                                                                                       \
    NDP_SHAPE_CHECK((a).rows == (b).rows && (a).cols == (b).cols && (a).dtype == (b).dtype,                            \
                    op ": " NDP_SHAPE " against " NDP_SHAPE, NDP_SHAPE_ARGS(a), NDP_SHAPE_ARGS(b))

/* Sets what a shape rule says about an output; data and stride belong to the caller. */
static inline void ndp_shape_set(ndp_view *v, int64_t rows, int64_t cols, ndp_dtype dtype) {
    v->rows = rows;
    v->cols = cols;
    v->dtype = dtype;
}

/* Sums of many terms (statistics of rows, gradients of weights) are kept wider than bf16. */
static inline ndp_dtype ndp_wide(ndp_dtype t) { return t == NDP_F64 ? NDP_F64 : NDP_F32; }

static inline double ndp_view_bytes(const ndp_view *v) {
    return (double)v->rows * (double)v->cols * (double)ndp_dtype_size(v->dtype);
}

/* Cost of an op that touches each of its operands once: `per` operations for each element of `of`. */
static inline void ndp_cost_stream(const ndp_op_call *c, int n_in, int n_out, const ndp_view *of, double per,
                                   double *flops, double *bytes) {
    *flops = per * (double)of->rows * (double)of->cols;
    *bytes = 0;
    for (int i = 0; i < n_in; i++)
        *bytes += ndp_view_bytes(&c->in[i]);
    for (int i = 0; i < n_out; i++)
        *bytes += ndp_view_bytes(&c->out[i]);
}

/* Row r of an integer operand: column 0. */
static inline int64_t ndp_int_at(const ndp_view *v, int64_t r) { return ((const int32_t *)v->data)[r * v->ld]; }

static inline bool ndp_present(const ndp_view *v) { return v->data != NULL; }

#endif
