/* A causal depthwise convolution: each column is filtered by its own taps over the rows before it, and never across the
 * start of a document. y[t] = sum over j of w[j] x[t - j], where t - j >= start[t]; row j of w weighs the row j back.
 *
 * It mixes rows, and no pass knows how to cut them: graphs with it are refused on the axes that do (parallel/apply.c).
 */
#include "ops/flow.h"
#include "ops/shape.h"

/* Of x or its gradient, the taps, and the starts. */
static ndp_status check(const ndp_op_call *c) {
    const ndp_view *x = &c->in[0], *w = &c->in[1], *start = &c->in[2];
    NDP_SHAPE_CHECK(w->rows >= 1 && w->cols == x->cols && w->dtype == x->dtype && start->rows == x->rows &&
                        start->cols == 1 && start->dtype == NDP_I32,
                    "%s: x " NDP_SHAPE ", w " NDP_SHAPE ", start " NDP_SHAPE, c->op->name, NDP_SHAPE_ARGS(*x),
                    NDP_SHAPE_ARGS(*w), NDP_SHAPE_ARGS(*start));
    return NDP_OK;
}

/* `w`: the taps, or their gradient. */
static double count_by(const ndp_op_call *c, const ndp_view *w) {
    return 2 * (double)w->rows * ndp_elements(&c->in[0]);
}
static void cost(const ndp_op_call *c, double *flops, double *bytes) {
    (void)bytes;
    *flops = count_by(c, &c->in[1]);
}

static ndp_status shape(ndp_op_call *c) {
    NDP_TRY(check(c));
    ndp_shape_like(&c->out[0], &c->in[0]);
    return NDP_OK;
}

static ndp_status backward(ndp_bwd *b) {
    int g = b->grad_out(b, 0);
    NDP_TRY(ndp_input_grad(b, &ndp_op_causal_conv_dx, b->attr, (int[]){g, b->in[1], b->in[2], -1}, 4, 3));
    return ndp_weight_grad(b, 1, &ndp_op_causal_conv_dw, (int[]){g, b->in[0], b->in[2]}, 3);
}

const ndp_op ndp_op_causal_conv = {
    NDP_NAMED(causal_conv),
    .n_in = 3,
    .n_out = 1,
    .rows = NDP_ROWS_MIXED,
    .shape = shape,
    .backward = backward,
    .cost = cost,
    NDP_FLOWS({.in = {NDP_IS(OPERAND, 0, "Tc"), NDP_IS(OPERAND, 1, "Kc"), NDP_IS(OPERAND, 2, "T1")},
               .out = {NDP_IS(RESULT, 0, "Tc")}}),
};

static ndp_status dx_shape(ndp_op_call *c) {
    NDP_TRY(shape(c));
    return ndp_shape_acc(c, 3);
}

const ndp_op ndp_op_causal_conv_dx = {
    NDP_NAMED(causal_conv_dx),
    .n_in = 4,
    .n_out = 1,
    .optional_in = 1u << 3,
    .rows = NDP_ROWS_MIXED,
    .shape = dx_shape,
    .cost = cost,
    NDP_FLOWS({.node = &ndp_op_causal_conv,
               .in = {NDP_IS(D_RESULT, 0, "Tc"), NDP_IS(OPERAND, 1, "Kc"), NDP_IS(OPERAND, 2, "T1"),
                      NDP_IS(EARLIER, 0, "..")},
               .out = {NDP_IS(D_OPERAND, 0, "Tc")}}),
};

/* The destination says how many taps there are. */
static ndp_status dw_shape(ndp_op_call *c) {
    const ndp_view *dy = &c->in[0], *start = &c->in[2];
    NDP_SHAPE_SAME(c, *dy, c->in[1]);
    NDP_SHAPE_CHECK(start->rows == dy->rows && start->cols == 1, "causal_conv_dw: dy " NDP_SHAPE ", start " NDP_SHAPE,
                    NDP_SHAPE_ARGS(*dy), NDP_SHAPE_ARGS(*start));
    ndp_shape_set(&c->out[0], c->out[0].rows, dy->cols, ndp_wide(dy->dtype));
    return NDP_OK;
}

static void dw_cost(const ndp_op_call *c, double *flops, double *bytes) {
    (void)bytes;
    *flops = count_by(c, &c->out[0]);
}

const ndp_op ndp_op_causal_conv_dw = {
    NDP_NAMED(causal_conv_dw),
    .n_in = 3,
    .n_out = 1,
    .rows = NDP_ROWS_MIXED,
    .shape = dw_shape,
    .cost = dw_cost,
    NDP_FLOWS({.node = &ndp_op_causal_conv,
               .in = {NDP_IS(D_RESULT, 0, "Tc"), NDP_IS(OPERAND, 0, "Tc"), NDP_IS(OPERAND, 2, "T1")},
               .out = {NDP_IS(D_OPERAND, 1, "Kc")}}),
};
