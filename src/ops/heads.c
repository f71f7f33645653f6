/* heads_split, heads_merge: rows with all their heads become one block of rows a part, each with its heads, as an
 * exchange between ranks wants them; and back. */
#include "ops/heads.h"
#include "ops/shape.h"

static ndp_status check(const char *op, const ndp_op_attr *a, const ndp_view *in) {
    int all = ndp_heads_all_parts(a);
    NDP_SHAPE_CHECK(a->heads > 0 && a->head_dim > 0 && a->parts > 0 && a->first >= 0 && a->first + a->parts <= all &&
                        (a->heads % all == 0 || all % a->heads == 0),
                    "%s: %d heads of %d in %d parts, in " NDP_SHAPE, op, a->heads, a->head_dim, a->parts,
                    NDP_SHAPE_ARGS(*in));
    return NDP_OK;
}

static ndp_status split_shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    NDP_TRY(check("heads_split", attr, &in[0]));
    NDP_SHAPE_CHECK(in[0].cols == (int64_t)attr->heads * attr->head_dim, "heads_split: %d heads of %d in " NDP_SHAPE,
                    attr->heads, attr->head_dim, NDP_SHAPE_ARGS(in[0]));
    ndp_shape_set(&out[0], in[0].rows * attr->parts, ndp_heads_of(attr).width, in[0].dtype);
    return NDP_OK;
}

static ndp_status merge_shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    NDP_TRY(check("heads_merge", attr, &in[0]));
    NDP_SHAPE_CHECK(in[0].rows % attr->parts == 0 && in[0].cols == ndp_heads_of(attr).width,
                    "heads_merge: %d parts with their share of %d heads of %d in " NDP_SHAPE, attr->parts, attr->heads,
                    attr->head_dim, NDP_SHAPE_ARGS(in[0]));
    ndp_shape_set(&out[0], in[0].rows / attr->parts, (int64_t)attr->heads * attr->head_dim,
                  attr->wide_grad ? attr->type : in[0].dtype);
    return NDP_OK;
}

/* Each is the backward of the other: a repeated head has the sum of its gradients (wide with wide_grad), rounded once.
 */
static ndp_status backward_by(ndp_bwd *b, const ndp_op *other) {
    int g = b->grad_out(b, 0), made;
    if (g < 0 || !b->wants(b, 0))
        return NDP_OK;
    return b->input_grad(b, other, b->attr, (int[]){g}, 1, (int[]){0}, 1, -1, &made);
}

static ndp_status split_backward(ndp_bwd *b) { return backward_by(b, &ndp_op_heads_merge); }
static ndp_status merge_backward(ndp_bwd *b) { return backward_by(b, &ndp_op_heads_split); }

static void split_cost(const ndp_op_call *c, double *flops, double *bytes) {
    ndp_cost_stream(c, 1, 1, &c->out[0], 0, flops, bytes);
}

static void merge_cost(const ndp_op_call *c, double *flops, double *bytes) {
    ndp_cost_stream(c, 1, 1, &c->out[0], (double)(ndp_heads_of(c->attr).repeats - 1), flops, bytes);
}

const ndp_op ndp_op_heads_split = {
    .id = NDP_OP_heads_split,
    .name = "heads_split",
    .n_in = 1,
    .n_out = 1,
    .alias = -1,
    .rows = NDP_ROWS_MIXED,
    .shape = split_shape,
    .backward = split_backward,
    .cost = split_cost,
};

const ndp_op ndp_op_heads_merge = {
    .id = NDP_OP_heads_merge,
    .name = "heads_merge",
    .n_in = 1,
    .n_out = 1,
    .alias = -1,
    .rows = NDP_ROWS_MIXED,
    .shape = merge_shape,
    .backward = merge_backward,
    .cost = merge_cost,
};
