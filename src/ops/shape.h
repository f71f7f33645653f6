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

/* Two views of the same extents and type. */
#define NDP_SHAPE_SAME(c, a, b)                                                                                        \
    NDP_SHAPE_CHECK((a).rows == (b).rows && (a).cols == (b).cols && (a).dtype == (b).dtype,                            \
                    "%s: " NDP_SHAPE " against " NDP_SHAPE, (c)->op->name, NDP_SHAPE_ARGS(a), NDP_SHAPE_ARGS(b))

/* Sets what a shape rule says about an output; data and stride belong to the caller. */
static inline void ndp_shape_set(ndp_view *v, int64_t rows, int64_t cols, ndp_dtype dtype) {
    v->rows = rows;
    v->cols = cols;
    v->dtype = dtype;
}

static inline void ndp_shape_like(ndp_view *v, const ndp_view *of) { ndp_shape_set(v, of->rows, of->cols, of->dtype); }

static inline double ndp_elements(const ndp_view *v) { return (double)v->rows * (double)v->cols; }

static inline double ndp_view_bytes(const ndp_view *v) { return ndp_elements(v) * (double)ndp_dtype_size(v->dtype); }

/* Shape rule: all operands are alike, and so is output 0. */
ndp_status ndp_shape_alike(ndp_op_call *c);
/* End of a shape rule: in[acc], if it is there, is like output 0. */
ndp_status ndp_shape_acc(const ndp_op_call *c, int acc);

/* What backward rules are written with: nothing happens where no gradient arrives at output 0, or in[i] wants none.
 * input_grad: `op` makes the gradient of in[0]; `acc` is its operand for an earlier one (ndp_bwd: acc_slot).
 * pass_grad: the gradient of output 0 is that of in[i], as it stands. weight_grad: `op` makes that of parameter in[i].
 */
ndp_status ndp_input_grad(ndp_bwd *b, const ndp_op *op, const ndp_op_attr *attr, int *ins, int n_in, int acc);
ndp_status ndp_pass_grad(ndp_bwd *b, int i);
ndp_status ndp_weight_grad(ndp_bwd *b, int i, const ndp_op *op, const int *ins, int n_in);

/* Row r of an integer operand: column 0. */
static inline int64_t ndp_int_at(const ndp_view *v, int64_t r) { return ((const int32_t *)v->data)[r * v->ld]; }

static inline bool ndp_present(const ndp_view *v) { return v->data != NULL; }

/* square_sum adds each piece in at most this many parts, whose sums are added in their order: threads only choose who
 * computes which part. */
enum { NDP_SQUARE_PARTS = 256, NDP_SQUARE_LANES = 16 };

#endif
