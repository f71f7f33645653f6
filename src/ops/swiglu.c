/* a = silu(gate) up over the two halves of gu, silu(g) = g / (1 + e^-g). */
#include "ops/shape.h"

static ndp_status shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    (void)attr;
    NDP_SHAPE_CHECK(in[0].cols % 2 == 0, "swiglu: gate and up in " NDP_SHAPE, NDP_SHAPE_ARGS(in[0]));
    ndp_shape_set(&out[0], in[0].rows, in[0].cols / 2, in[0].dtype);
    return NDP_OK;
}

static ndp_status backward(ndp_bwd *b) {
    int g = b->grad_out(b, 0), made;
    if (g < 0 || !b->wants(b, 0))
        return NDP_OK;
    return b->input_grad(b, &ndp_op_swiglu_bwd, b->attr, (int[]){g, b->in[0]}, 2, (int[]){0}, 1, -1, &made);
}

/* An exponential and a division count as about ten operations. */
static void cost(const ndp_op_call *c, double *flops, double *bytes) {
    ndp_cost_stream(c, 1, 1, &c->out[0], 22, flops, bytes);
}

const ndp_op ndp_op_swiglu = {
    .id = NDP_OP_swiglu,
    .name = "swiglu",
    .n_in = 1,
    .n_out = 1,
    .alias = -1,
    .rows = NDP_ROWS_ALIKE,
    .shape = shape,
    .backward = backward,
    .cost = cost,
};

static ndp_status bwd_shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    (void)attr;
    NDP_SHAPE_CHECK(in[0].rows == in[1].rows && 2 * in[0].cols == in[1].cols && in[0].dtype == in[1].dtype,
                    "swiglu_bwd: da " NDP_SHAPE ", gu " NDP_SHAPE, NDP_SHAPE_ARGS(in[0]), NDP_SHAPE_ARGS(in[1]));
    ndp_shape_set(&out[0], in[1].rows, in[1].cols, in[1].dtype);
    return NDP_OK;
}

static void bwd_cost(const ndp_op_call *c, double *flops, double *bytes) {
    ndp_cost_stream(c, 2, 1, &c->in[0], 28, flops, bytes);
}

const ndp_op ndp_op_swiglu_bwd = {
    .id = NDP_OP_swiglu_bwd,
    .name = "swiglu_bwd",
    .n_in = 2,
    .n_out = 1,
    .alias = -1,
    .rows = NDP_ROWS_ALIKE,
    .shape = bwd_shape,
    .cost = bwd_cost,
};
