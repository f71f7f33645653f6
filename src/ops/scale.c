/* In place on every element: x times a number, x capped to (-c, c) by c tanh(x / c), and 0. */
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
