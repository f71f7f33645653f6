/* Two attentions of the same queries over disjoint keys become one: what each would be scaled by in a softmax over both
 * follows from their lse. -inf: saw nothing. */
#include "ops/shape.h"

static ndp_status shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    (void)attr;
    NDP_SHAPE_SAME("attention_merge: o", in[0], in[2]);
    NDP_SHAPE_SAME("attention_merge: lse", in[1], in[3]);
    NDP_SHAPE_CHECK(in[0].dtype == ndp_wide(in[0].dtype) && in[1].dtype == in[0].dtype && in[1].rows == in[0].rows &&
                        in[1].cols > 0 && in[0].cols % in[1].cols == 0,
                    "attention_merge: o " NDP_SHAPE ", lse " NDP_SHAPE, NDP_SHAPE_ARGS(in[0]), NDP_SHAPE_ARGS(in[1]));
    ndp_shape_set(&out[0], in[0].rows, in[0].cols, in[0].dtype);
    ndp_shape_set(&out[1], in[1].rows, in[1].cols, in[1].dtype);
    return NDP_OK;
}

static void cost(const ndp_op_call *c, double *flops, double *bytes) {
    ndp_cost_stream(c, 4, 2, &c->in[0], 3, flops, bytes);
}

const ndp_op ndp_op_attention_merge = {
    .id = NDP_OP_attention_merge,
    .name = "attention_merge",
    .n_in = 4,
    .n_out = 2,
    .alias = 0,
    .rows = NDP_ROWS_ALIKE,
    .shape = shape,
    .cost = cost,
};
