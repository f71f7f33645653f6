/* silu of a causal depthwise convolution (causal_conv.c), with the taps as files have them: a row for each column, the
 * last number weighs the row itself; those of x begin at attr.first. u, which silu is of, is not kept: the backward
 * computes it again. Where axes cut the columns of x, they cut between attr.heads of attr.head_dim columns. */
#include "ops/flow.h"
#include "ops/shape.h"

/* Of two operands like x, the taps, and the starts, from operand `first` on: x is the last of the two. */
static ndp_status check(const ndp_op_call *c, int first) {
    const ndp_view *x = &c->in[first], *w = x + 1, *start = x + 2;
    NDP_SHAPE_SAME(c, c->in[0], *x);
    NDP_SHAPE_CHECK(
        w->cols >= 1 && w->cols <= NDP_MAX_TAPS && c->attr->first >= 0 && c->attr->first + x->cols <= w->rows &&
            w->dtype == x->dtype && start->rows == x->rows && start->cols == 1 && start->dtype == NDP_I32,
        "%s: x " NDP_SHAPE ", w " NDP_SHAPE ", start " NDP_SHAPE ", with at most %d taps, from %lld on", c->op->name,
        NDP_SHAPE_ARGS(*x), NDP_SHAPE_ARGS(*w), NDP_SHAPE_ARGS(*start), NDP_MAX_TAPS, (long long)c->attr->first);
    return NDP_OK;
}

/* `per`: operations for an element and a tap, beside those of silu, or of its slope and what is left. */
static void count(const ndp_op_call *c, int w, double per, double *flops) {
    *flops = ndp_elements(&c->in[0]) * (per * (double)c->in[w].cols + 25);
}

static ndp_status shape(ndp_op_call *c) {
    NDP_TRY(check(c, 0));
    ndp_shape_like(&c->out[0], &c->in[0]);
    return NDP_OK;
}

static void cost(const ndp_op_call *c, double *flops, double *bytes) {
    (void)bytes;
    count(c, 1, 2, flops);
}

static ndp_status backward(ndp_bwd *b) {
    int ins[] = {b->grad_out(b, 0), b->in[0], b->in[1], b->in[2], -1};
    NDP_TRY(ndp_input_grad(b, &ndp_op_conv_silu_dx, b->attr, ins, 5, 4));
    return ndp_weight_grad(b, 1, &ndp_op_conv_silu_dw, ins, 4);
}

const ndp_op ndp_op_conv_silu = {
    NDP_NAMED(conv_silu),
    .n_in = 3,
    .n_out = 1,
    .rows = NDP_ROWS_MIXED,
    .shape = shape,
    .backward = backward,
    .cost = cost,
    .reads = NDP_READS_wide_grad | NDP_READS_first | NDP_READS_heads | NDP_READS_head_dim,
    NDP_FLOWS({.in = {NDP_IS(OPERAND, 0, "Tc"), NDP_IS(OPERAND, 1, "cK"), NDP_IS(OPERAND, 2, "T1")},
               .out = {NDP_IS(RESULT, 0, "Tc")}}),
};

static ndp_status dx_shape(ndp_op_call *c) {
    const ndp_view *x = &c->in[1];
    NDP_TRY(check(c, 1));
    ndp_shape_set(&c->out[0], x->rows, x->cols, c->attr->wide_grad ? ndp_wide(x->dtype) : x->dtype);
    return ndp_shape_acc(c, 4);
}

static void bwd_cost(const ndp_op_call *c, double *flops, double *bytes) {
    (void)bytes;
    count(c, 2, 4, flops);
}

const ndp_op ndp_op_conv_silu_dx = {
    NDP_NAMED(conv_silu_dx),
    .n_in = 5,
    .n_out = 1,
    .optional_in = 1u << 4,
    .rows = NDP_ROWS_MIXED,
    .shape = dx_shape,
    .cost = bwd_cost,
    .reads = NDP_READS_wide_grad | NDP_READS_first,
    NDP_FLOWS({.node = &ndp_op_conv_silu,
               .in = {NDP_IS(D_RESULT, 0, "Tc"), NDP_IS(OPERAND, 0, "Tc"), NDP_IS(OPERAND, 1, "cK"),
                      NDP_IS(OPERAND, 2, "T1"), NDP_IS(EARLIER, 0, "..")},
               .out = {NDP_IS(D_OPERAND, 0, "Tc")}}),
};

static ndp_status dw_shape(ndp_op_call *c) {
    NDP_TRY(check(c, 1));
    ndp_shape_set(&c->out[0], c->in[2].rows, c->in[2].cols, ndp_wide(c->in[2].dtype));
    return NDP_OK;
}

const ndp_op ndp_op_conv_silu_dw = {
    NDP_NAMED(conv_silu_dw),
    .n_in = 4,
    .n_out = 1,
    .rows = NDP_ROWS_MIXED,
    .shape = dw_shape,
    .cost = bwd_cost,
    .reads = NDP_READS_first,
    NDP_FLOWS({.node = &ndp_op_conv_silu,
               .in = {NDP_IS(D_RESULT, 0, "Tc"), NDP_IS(OPERAND, 0, "Tc"), NDP_IS(OPERAND, 1, "cK"),
                      NDP_IS(OPERAND, 2, "T1")},
               .out = {NDP_IS(D_OPERAND, 1, "cK")}}),
};
