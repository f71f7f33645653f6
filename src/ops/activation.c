/* Activations: GELU (arXiv:1606.08415), x / 2 (1 + erf(x / sqrt(2))), by itself (gelu_erf) and in its tanh form,
 * gelu(x) = x / 2 (1 + tanh u), u = sqrt(2 / pi) (x + 0.044715 x^3); and gates, a = gelu(gate) up or silu(gate) up over
 * the two halves of gu, silu(g) = g / (1 + e^-g). The one of gpt_oss is clipped, and has gate and up in turn, as its
 * stacks of experts have them. */
#include "ops/flow.h"
#include "ops/shape.h"

static ndp_status backward_by(ndp_bwd *b, const ndp_op *op) {
    return ndp_input_grad(b, op, b->attr, (int[]){b->grad_out(b, 0), b->in[0]}, 2, -1);
}

/* alone ---------------------------------------------------------------------------------------------------------- */

/* `per`, `bwd_per`: operations for each element of a. */
#define PLAIN(op, per, bwd_per)                                                                                        \
    static ndp_status op##_backward(ndp_bwd *b) { return backward_by(b, &ndp_op_##op##_bwd); }                         \
    const ndp_op ndp_op_##op = {                                                                                       \
        NDP_NAMED(op),                                                                                                 \
        .n_in = 1,                                                                                                     \
        .n_out = 1,                                                                                                    \
        .rows = NDP_ROWS_ALIKE,                                                                                        \
        .shape = ndp_shape_alike,                                                                                      \
        .backward = op##_backward,                                                                                     \
        .flops = per,                                                                                                  \
        NDP_FLOWS({.in = {NDP_IS(OPERAND, 0, "tc")}, .out = {NDP_IS(RESULT, 0, "tc")}}),                               \
    };                                                                                                                 \
    const ndp_op ndp_op_##op##_bwd = {                                                                                 \
        NDP_NAMED(op##_bwd),                                                                                           \
        .n_in = 2,                                                                                                     \
        .n_out = 1,                                                                                                    \
        .rows = NDP_ROWS_ALIKE,                                                                                        \
        .shape = ndp_shape_alike,                                                                                      \
        .flops = bwd_per,                                                                                              \
        NDP_FLOWS({.node = &ndp_op_##op,                                                                               \
                   .in = {NDP_IS(D_RESULT, 0, "tc"), NDP_IS(OPERAND, 0, "tc")},                                        \
                   .out = {NDP_IS(D_OPERAND, 0, "tc")}}),                                                              \
    };

PLAIN(gelu, 27, 36)
PLAIN(gelu_erf, 34, 48)

/* as a gate ------------------------------------------------------------------------------------------------------ */

static ndp_status gate_shape(ndp_op_call *c) {
    const ndp_view *gu = &c->in[0];
    NDP_SHAPE_CHECK(gu->cols % 2 == 0, "%s: gate and up in " NDP_SHAPE, c->op->name, NDP_SHAPE_ARGS(*gu));
    ndp_shape_set(&c->out[0], gu->rows, gu->cols / 2, gu->dtype);
    return NDP_OK;
}

static ndp_status gate_bwd_shape(ndp_op_call *c) {
    const ndp_view *da = &c->in[0], *gu = &c->in[1];
    NDP_SHAPE_CHECK(da->rows == gu->rows && 2 * da->cols == gu->cols && da->dtype == gu->dtype,
                    "%s: da " NDP_SHAPE ", gu " NDP_SHAPE, c->op->name, NDP_SHAPE_ARGS(*da), NDP_SHAPE_ARGS(*gu));
    ndp_shape_like(&c->out[0], gu);
    return NDP_OK;
}

#define GATE(op, per, bwd_per)                                                                                         \
    static ndp_status op##_backward(ndp_bwd *b) { return backward_by(b, &ndp_op_##op##_bwd); }                         \
    const ndp_op ndp_op_##op = {                                                                                       \
        NDP_NAMED(op),        .n_in = 1,                                                                               \
        .n_out = 1,           .rows = NDP_ROWS_ALIKE,                                                                  \
        .shape = gate_shape,  .backward = op##_backward,                                                               \
        .flops = (per) / 2.0, NDP_FLOWS({.in = {NDP_IS(OPERAND, 0, "tf")}, .out = {NDP_IS(RESULT, 0, "tf")}}),         \
    };                                                                                                                 \
    const ndp_op ndp_op_##op##_bwd = {                                                                                 \
        NDP_NAMED(op##_bwd),                                                                                           \
        .n_in = 2,                                                                                                     \
        .n_out = 1,                                                                                                    \
        .rows = NDP_ROWS_ALIKE,                                                                                        \
        .shape = gate_bwd_shape,                                                                                       \
        .flops = bwd_per,                                                                                              \
        NDP_FLOWS({.node = &ndp_op_##op,                                                                               \
                   .in = {NDP_IS(D_RESULT, 0, "tf"), NDP_IS(OPERAND, 0, "tf")},                                        \
                   .out = {NDP_IS(D_OPERAND, 0, "tf")}}),                                                              \
    };

GATE(geglu, 27, 36)
GATE(swiglu, 22, 28)

/* as a gate in turn ---------------------------------------------------------------------------------------------- */

static ndp_status clipped_backward(ndp_bwd *b) { return backward_by(b, &ndp_op_swiglu_clipped_bwd); }

const ndp_op ndp_op_swiglu_clipped = {
    NDP_NAMED(swiglu_clipped),
    .n_in = 1,
    .n_out = 1,
    .rows = NDP_ROWS_ALIKE,
    .shape = gate_shape,
    .backward = clipped_backward,
    .flops = 26 / 2.0,
    .reads = NDP_READS_scale | NDP_READS_cap,
    NDP_FLOWS({.in = {NDP_IS(OPERAND, 0, "tf", .each = -2)}, .out = {NDP_IS(RESULT, 0, "tf")}}),
};

const ndp_op ndp_op_swiglu_clipped_bwd = {
    NDP_NAMED(swiglu_clipped_bwd),
    .n_in = 2,
    .n_out = 1,
    .rows = NDP_ROWS_ALIKE,
    .shape = gate_bwd_shape,
    .flops = 32,
    .reads = NDP_READS_scale | NDP_READS_cap,
    NDP_FLOWS({.node = &ndp_op_swiglu_clipped,
               .in = {NDP_IS(D_RESULT, 0, "tf"), NDP_IS(OPERAND, 0, "tf", .each = -2)},
               .out = {NDP_IS(D_OPERAND, 0, "tf", .each = -2)}}),
};
