/* c = a + b, of equal matrices or of a matrix and a row. */
#include "ops/shape.h"

static ndp_status shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    (void)attr;
    NDP_SHAPE_SAME("add", in[0], in[1]);
    ndp_shape_set(&out[0], in[0].rows, in[0].cols, in[0].dtype);
    return NDP_OK;
}

static ndp_status backward(ndp_bwd *b) {
    int g = b->grad_out(b, 0);
    for (int i = 0; g >= 0 && i < 2; i++)
        if (b->wants(b, i))
            NDP_TRY(b->pass_grad(b, i, g));
    return NDP_OK;
}

static void cost(const ndp_op_call *c, double *flops, double *bytes) {
    ndp_cost_stream(c, 2, 1, &c->out[0], 1, flops, bytes);
}

const ndp_op ndp_op_add = {
    .id = NDP_OP_add,
    .name = "add",
    .n_in = 2,
    .n_out = 1,
    .alias = -1,
    .rows = NDP_ROWS_ALIKE,
    .shape = shape,
    .backward = backward,
    .cost = cost,
};

/* y += b, b one row for all -------------------------------------------------------------------------------------- */

static ndp_status bias_shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    (void)attr;
    NDP_SHAPE_CHECK(in[1].rows == 1 && in[1].cols == in[0].cols && ndp_wide(in[1].dtype) == ndp_wide(in[0].dtype),
                    "add_bias: y " NDP_SHAPE ", b " NDP_SHAPE, NDP_SHAPE_ARGS(in[0]), NDP_SHAPE_ARGS(in[1]));
    ndp_shape_set(&out[0], in[0].rows, in[0].cols, in[0].dtype);
    return NDP_OK;
}

static ndp_status bias_backward(ndp_bwd *b) {
    int g = b->grad_out(b, 0);
    if (g < 0)
        return NDP_OK;
    if (b->wants(b, 0))
        NDP_TRY(b->pass_grad(b, 0, g));
    return b->wants(b, 1) ? b->weight_grad(b, &ndp_op_linear_db, b->attr, (int[]){g}, 1, 1) : NDP_OK;
}

static void bias_cost(const ndp_op_call *c, double *flops, double *bytes) {
    ndp_cost_stream(c, 2, 1, &c->out[0], 1, flops, bytes);
}

const ndp_op ndp_op_add_bias = {
    .id = NDP_OP_add_bias,
    .name = "add_bias",
    .n_in = 2,
    .n_out = 1,
    .alias = 0,
    .rows = NDP_ROWS_ALIKE,
    .shape = bias_shape,
    .backward = bias_backward,
    .cost = bias_cost,
};
