/* GELU (arXiv:1606.08415) in its tanh form, alone or as the gate of a product: gelu(x) = x / 2 (1 + tanh u),
 * u = sqrt(2 / pi) (x + 0.044715 x^3). */
#include "ops/shape.h"

static ndp_status backward_by(ndp_bwd *b, const ndp_op *op) {
    int g = b->grad_out(b, 0), made;
    if (g < 0 || !b->wants(b, 0))
        return NDP_OK;
    return b->input_grad(b, op, b->attr, (int[]){g, b->in[0]}, 2, (int[]){0}, 1, -1, &made);
}

/* An exponential and a division count as about ten operations. */
static void cost(const ndp_op_call *c, double *flops, double *bytes) {
    ndp_cost_stream(c, 1, 1, &c->out[0], 27, flops, bytes);
}

static void bwd_cost(const ndp_op_call *c, double *flops, double *bytes) {
    ndp_cost_stream(c, 2, 1, &c->in[0], 36, flops, bytes);
}

/* alone ---------------------------------------------------------------------------------------------------------- */

static ndp_status shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    (void)attr;
    ndp_shape_set(&out[0], in[0].rows, in[0].cols, in[0].dtype);
    return NDP_OK;
}

static ndp_status backward(ndp_bwd *b) { return backward_by(b, &ndp_op_gelu_bwd); }

const ndp_op ndp_op_gelu = {
    .id = NDP_OP_gelu,
    .name = "gelu",
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
    NDP_SHAPE_SAME("gelu_bwd", in[0], in[1]);
    ndp_shape_set(&out[0], in[1].rows, in[1].cols, in[1].dtype);
    return NDP_OK;
}

const ndp_op ndp_op_gelu_bwd = {
    .id = NDP_OP_gelu_bwd,
    .name = "gelu_bwd",
    .n_in = 2,
    .n_out = 1,
    .alias = -1,
    .rows = NDP_ROWS_ALIKE,
    .shape = bwd_shape,
    .cost = bwd_cost,
};

/* as a gate ------------------------------------------------------------------------------------------------------ */

static ndp_status gate_shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    (void)attr;
    NDP_SHAPE_CHECK(in[0].cols % 2 == 0, "geglu: gate and up in " NDP_SHAPE, NDP_SHAPE_ARGS(in[0]));
    ndp_shape_set(&out[0], in[0].rows, in[0].cols / 2, in[0].dtype);
    return NDP_OK;
}

static ndp_status gate_backward(ndp_bwd *b) { return backward_by(b, &ndp_op_geglu_bwd); }

const ndp_op ndp_op_geglu = {
    .id = NDP_OP_geglu,
    .name = "geglu",
    .n_in = 1,
    .n_out = 1,
    .alias = -1,
    .rows = NDP_ROWS_ALIKE,
    .shape = gate_shape,
    .backward = gate_backward,
    .cost = cost,
};

static ndp_status gate_bwd_shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    (void)attr;
    NDP_SHAPE_CHECK(in[0].rows == in[1].rows && 2 * in[0].cols == in[1].cols && in[0].dtype == in[1].dtype,
                    "geglu_bwd: da " NDP_SHAPE ", gu " NDP_SHAPE, NDP_SHAPE_ARGS(in[0]), NDP_SHAPE_ARGS(in[1]));
    ndp_shape_set(&out[0], in[1].rows, in[1].cols, in[1].dtype);
    return NDP_OK;
}

const ndp_op ndp_op_geglu_bwd = {
    .id = NDP_OP_geglu_bwd,
    .name = "geglu_bwd",
    .n_in = 2,
    .n_out = 1,
    .alias = -1,
    .rows = NDP_ROWS_ALIKE,
    .shape = gate_bwd_shape,
    .cost = bwd_cost,
};
