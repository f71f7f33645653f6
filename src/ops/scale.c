/* In place on every element: x times a number, x capped to (-c, c) by c tanh(x / c), and 0. */
#include "ops/shape.h"

static ndp_status shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    (void)attr;
    ndp_shape_set(&out[0], in[0].rows, in[0].cols, in[0].dtype);
    return NDP_OK;
}

static ndp_status scale_backward(ndp_bwd *b) {
    int g = b->grad_out(b, 0), made;
    if (g < 0 || !b->wants(b, 0))
        return NDP_OK;
    return b->input_grad(b, &ndp_op_scale, b->attr, (int[]){g}, 1, (int[]){0}, 1, -1, &made);
}

static void scale_cost(const ndp_op_call *c, double *flops, double *bytes) {
    ndp_cost_stream(c, 1, 1, &c->in[0], 1, flops, bytes);
}

const ndp_op ndp_op_scale = {
    .id = NDP_OP_scale,
    .name = "scale",
    .n_in = 1,
    .n_out = 1,
    .alias = 0,
    .rows = NDP_ROWS_ALIKE,
    .shape = shape,
    .backward = scale_backward,
    .cost = scale_cost,
};

/* Of logits that nothing is trained on: xent caps its own. */
static void cap_cost(const ndp_op_call *c, double *flops, double *bytes) {
    ndp_cost_stream(c, 1, 1, &c->in[0], 20, flops, bytes);
}

const ndp_op ndp_op_cap = {
    .id = NDP_OP_cap,
    .name = "cap",
    .n_in = 1,
    .n_out = 1,
    .alias = 0,
    .rows = NDP_ROWS_ALIKE,
    .shape = shape,
    .cost = cap_cost,
};

const ndp_op ndp_op_zero = {
    .id = NDP_OP_zero,
    .name = "zero",
    .n_in = 1,
    .n_out = 1,
    .alias = 0,
    .rows = NDP_ROWS_ALIKE,
    .shape = shape,
    .cost = scale_cost,
};
