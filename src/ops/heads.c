/* heads_split, heads_merge: rows with all their heads become one block of rows a part, each with its heads, as an
 * exchange between ranks wants them; and back. */
#include "ops/heads.h"
#include "ops/flow.h"
#include "ops/shape.h"

/* The nodes whose rows are exchanged for heads. */
#define EXCHANGED                                                                                                      \
    NDP_FLOWS({.node = &ndp_op_attention, .own = OWN}, {.node = &ndp_op_conv_silu, .own = OWN | PIECES},               \
              {.node = &ndp_op_delta_rule, .own = OWN | PIECES})
enum { OWN = NDP_READS_head_dim, PIECES = NDP_READS_parts }; /* parts of those nodes are of rows */

static ndp_status check(const ndp_op_call *c) {
    const ndp_op_attr *a = c->attr;
    int all = ndp_heads_all_parts(a);
    NDP_SHAPE_CHECK(a->heads > 0 && a->head_dim > 0 && a->parts > 0 && a->first >= 0 && a->first + a->parts <= all &&
                        (a->heads % all == 0 || all % a->heads == 0),
                    "%s: %d heads of %d in %d parts, in " NDP_SHAPE, c->op->name, a->heads, a->head_dim, a->parts,
                    NDP_SHAPE_ARGS(c->in[0]));
    return NDP_OK;
}

static ndp_status split_shape(ndp_op_call *c) {
    const ndp_op_attr *a = c->attr;
    const ndp_view *x = &c->in[0];
    NDP_TRY(check(c));
    NDP_SHAPE_CHECK(x->cols == (int64_t)a->heads * a->head_dim, "heads_split: %d heads of %d in " NDP_SHAPE, a->heads,
                    a->head_dim, NDP_SHAPE_ARGS(*x));
    ndp_shape_set(&c->out[0], x->rows * a->parts, ndp_heads_of(a).width, x->dtype);
    return NDP_OK;
}

static ndp_status merge_shape(ndp_op_call *c) {
    const ndp_op_attr *a = c->attr;
    const ndp_view *y = &c->in[0];
    NDP_TRY(check(c));
    NDP_SHAPE_CHECK(y->rows % a->parts == 0 && y->cols == ndp_heads_of(a).width,
                    "heads_merge: %d parts with their share of %d heads of %d in " NDP_SHAPE, a->parts, a->heads,
                    a->head_dim, NDP_SHAPE_ARGS(*y));
    ndp_shape_set(&c->out[0], y->rows / a->parts, (int64_t)a->heads * a->head_dim, a->wide_grad ? a->type : y->dtype);
    return NDP_OK;
}

/* Each is the backward of the other: a repeated head has the sum of its gradients (wide with wide_grad), rounded once.
 */
static ndp_status backward_by(ndp_bwd *b, const ndp_op *other) {
    return ndp_input_grad(b, other, b->attr, (int[]){b->grad_out(b, 0)}, 1, -1);
}

static ndp_status split_backward(ndp_bwd *b) { return backward_by(b, &ndp_op_heads_merge); }
static ndp_status merge_backward(ndp_bwd *b) { return backward_by(b, &ndp_op_heads_split); }

static void merge_cost(const ndp_op_call *c, double *flops, double *bytes) {
    (void)bytes;
    *flops = (double)(ndp_heads_of(c->attr).repeats - 1) * ndp_elements(&c->out[0]);
}

const ndp_op ndp_op_heads_split = {
    NDP_NAMED(heads_split),
    .n_in = 1,
    .n_out = 1,
    .rows = NDP_ROWS_MIXED,
    .shape = split_shape,
    .backward = split_backward,
    .reads = NDP_READS_heads | NDP_READS_head_dim | NDP_READS_parts | NDP_READS_all_parts | NDP_READS_first |
             NDP_READS_wide_grad | NDP_READS_type,
    EXCHANGED,
};

const ndp_op ndp_op_heads_merge = {
    NDP_NAMED(heads_merge),
    .n_in = 1,
    .n_out = 1,
    .rows = NDP_ROWS_MIXED,
    .shape = merge_shape,
    .backward = merge_backward,
    .cost = merge_cost,
    .reads = NDP_READS_heads | NDP_READS_head_dim | NDP_READS_parts | NDP_READS_all_parts | NDP_READS_first |
             NDP_READS_wide_grad | NDP_READS_type,
    EXCHANGED,
};
