/* In place on every element: x times a number, of the call or stored, x capped to (-c, c) by c tanh(x / c), and 0. */
#include "ops/flow.h"
#include "ops/shape.h"

static ndp_status scale_backward(ndp_bwd *b) {
    return ndp_input_grad(b, &ndp_op_scale, b->attr, (int[]){b->grad_out(b, 0)}, 1, -1);
}

const ndp_op ndp_op_scale = {
    NDP_NAMED(scale),
    .n_in = 1,
    .n_out = 1,
    .in_place = true,
    .rows = NDP_ROWS_ALIKE,
    .shape = ndp_shape_alike,
    .backward = scale_backward,
    .flops = 1,
    .reads = NDP_READS_scale,
    NDP_FLOWS({.in = {NDP_IS(EITHER, 0, "tc")}, .out = {NDP_IS(EITHER, 0, "tc")}}),
};

static ndp_status by_shape(ndp_op_call *c) {
    const ndp_view *x = &c->in[0], *by = &c->in[1];
    NDP_SHAPE_CHECK(by->rows == 1 && by->cols == 1 && by->dtype == ndp_wide(x->dtype),
                    "scale_by: x " NDP_SHAPE ", by " NDP_SHAPE, NDP_SHAPE_ARGS(*x), NDP_SHAPE_ARGS(*by));
    ndp_shape_like(&c->out[0], x);
    return NDP_OK;
}

/* The number has no gradient. */
static ndp_status by_backward(ndp_bwd *b) {
    return ndp_input_grad(b, &ndp_op_scale_by, b->attr, (int[]){b->grad_out(b, 0), b->in[1]}, 2, -1);
}

const ndp_op ndp_op_scale_by = {
    NDP_NAMED(scale_by),
    .n_in = 2,
    .n_out = 1,
    .in_place = true,
    .rows = NDP_ROWS_ALIKE,
    .shape = by_shape,
    .backward = by_backward,
    .flops = 1,
    NDP_FLOWS({.in = {NDP_IS(EITHER, 0, "tc"), NDP_IS(OPERAND, 1, "11")}, .out = {NDP_IS(EITHER, 0, "tc")}}),
};

/* Of logits that nothing is trained on: xent caps its own. */
const ndp_op ndp_op_cap = {
    NDP_NAMED(cap),
    .n_in = 1,
    .n_out = 1,
    .in_place = true,
    .rows = NDP_ROWS_ALIKE,
    .shape = ndp_shape_alike,
    .flops = 20,
    .reads = NDP_READS_cap,
    NDP_FLOWS({.in = {NDP_IS(OPERAND, 0, "tc")}, .out = {NDP_IS(RESULT, 0, "tc")}}),
};

const ndp_op ndp_op_zero = {
    NDP_NAMED(zero),
    .n_in = 1,
    .n_out = 1,
    .in_place = true,
    .rows = NDP_ROWS_ALIKE,
    .shape = ndp_shape_alike,
    .flops = 1,
    NDP_FLOWS({.any = true, .in = {NDP_IS(ANY, 0, "..")}}),
};
