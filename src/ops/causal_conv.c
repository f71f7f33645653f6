/* A causal depthwise convolution: each column is filtered by its own taps over the rows before it, and never across the
 * start of a document. y[t] = sum over j of w[j] x[t - j], where t - j >= start[t]; row j of w weighs the row j back.
 *
 * It mixes rows, and no pass knows how to cut them: graphs with it are refused on the axes that do (parallel/apply.c).
 */
#include "ops/shape.h"

static ndp_status check(const char *op, const ndp_view *x, const ndp_view *w, const ndp_view *start) {
    NDP_SHAPE_CHECK(w->rows >= 1 && w->cols == x->cols && w->dtype == x->dtype && start->rows == x->rows &&
                        start->cols == 1 && start->dtype == NDP_I32,
                    "%s: x " NDP_SHAPE ", w " NDP_SHAPE ", start " NDP_SHAPE, op, NDP_SHAPE_ARGS(*x),
                    NDP_SHAPE_ARGS(*w), NDP_SHAPE_ARGS(*start));
    return NDP_OK;
}

static ndp_status shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    (void)attr;
    NDP_TRY(check("causal_conv", &in[0], &in[1], &in[2]));
    ndp_shape_set(&out[0], in[0].rows, in[0].cols, in[0].dtype);
    return NDP_OK;
}

static ndp_status backward(ndp_bwd *b) {
    int g = b->grad_out(b, 0), made;
    if (g < 0)
        return NDP_OK;
    if (b->wants(b, 0))
        NDP_TRY(b->input_grad(b, &ndp_op_causal_conv_dx, b->attr, (int[]){g, b->in[1], b->in[2], -1}, 4, (int[]){0}, 1,
                              3, &made));
    if (b->wants(b, 1))
        NDP_TRY(b->weight_grad(b, &ndp_op_causal_conv_dw, b->attr, (int[]){g, b->in[0], b->in[2]}, 3, 1));
    return NDP_OK;
}

static void cost(const ndp_op_call *c, double *flops, double *bytes) {
    ndp_cost_stream(c, 3, 1, &c->in[0], 2 * (double)c->in[1].rows, flops, bytes);
}

const ndp_op ndp_op_causal_conv = {
    .id = NDP_OP_causal_conv,
    .name = "causal_conv",
    .n_in = 3,
    .n_out = 1,
    .alias = -1,
    .rows = NDP_ROWS_MIXED,
    .shape = shape,
    .backward = backward,
    .cost = cost,
};

static ndp_status dx_shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    (void)attr;
    NDP_TRY(check("causal_conv_dx", &in[0], &in[1], &in[2]));
    ndp_shape_set(&out[0], in[0].rows, in[0].cols, in[0].dtype);
    if (in[3].rows)
        NDP_SHAPE_SAME("causal_conv_dx", in[3], out[0]);
    return NDP_OK;
}

static void dx_cost(const ndp_op_call *c, double *flops, double *bytes) {
    ndp_cost_stream(c, 4, 1, &c->in[0], 2 * (double)c->in[1].rows, flops, bytes);
}

const ndp_op ndp_op_causal_conv_dx = {
    .id = NDP_OP_causal_conv_dx,
    .name = "causal_conv_dx",
    .n_in = 4,
    .n_out = 1,
    .optional_in = 1u << 3,
    .alias = -1,
    .rows = NDP_ROWS_MIXED,
    .shape = dx_shape,
    .cost = dx_cost,
};

/* The destination says how many taps there are. */
static ndp_status dw_shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    (void)attr;
    NDP_SHAPE_SAME("causal_conv_dw", in[0], in[1]);
    NDP_SHAPE_CHECK(in[2].rows == in[0].rows && in[2].cols == 1, "causal_conv_dw: dy " NDP_SHAPE ", start " NDP_SHAPE,
                    NDP_SHAPE_ARGS(in[0]), NDP_SHAPE_ARGS(in[2]));
    ndp_shape_set(&out[0], out[0].rows, in[0].cols, ndp_wide(in[0].dtype));
    return NDP_OK;
}

static void dw_cost(const ndp_op_call *c, double *flops, double *bytes) {
    ndp_cost_stream(c, 3, 1, &c->in[0], 2 * (double)c->out[0].rows, flops, bytes);
}

const ndp_op ndp_op_causal_conv_dw = {
    .id = NDP_OP_causal_conv_dw,
    .name = "causal_conv_dw",
    .n_in = 3,
    .n_out = 1,
    .alias = -1,
    .rows = NDP_ROWS_MIXED,
    .shape = dw_shape,
    .cost = dw_cost,
};
