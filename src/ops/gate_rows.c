/* Gates beside what they let pass. gate_by: each number has one of its own. gate_rows: rows times the sigmoid of a
 * number each, which says how much of a row passes: y[t] = s(gate[t]) x[t]. Linear in x, so the gradient of x is the
 * same op on that of y; the gate's is s (1 - s) times the dot product of a row and its gradient. Gates and their
 * gradients are wide: one number decides about all columns of a row. */
#include "ops/flow.h"
#include "ops/shape.h"

/* A wide number for each row of x. */
static ndp_status check_gate(const ndp_op_call *c, const ndp_view *x, const ndp_view *gate) {
    NDP_SHAPE_CHECK(gate->rows == x->rows && gate->cols == 1 && gate->dtype == ndp_wide(x->dtype),
                    "%s: x " NDP_SHAPE ", gate " NDP_SHAPE, c->op->name, NDP_SHAPE_ARGS(*x), NDP_SHAPE_ARGS(*gate));
    return NDP_OK;
}

/* gate_rows ------------------------------------------------------------------------------------------------------ */

static ndp_status shape(ndp_op_call *c) {
    NDP_TRY(check_gate(c, &c->in[0], &c->in[1]));
    ndp_shape_like(&c->out[0], &c->in[0]);
    return NDP_OK;
}

static ndp_status backward(ndp_bwd *b) {
    int g = b->grad_out(b, 0);
    NDP_TRY(ndp_input_grad(b, &ndp_op_gate_rows, b->attr, (int[]){g, b->in[1]}, 2, -1));
    if (g < 0 || !b->wants(b, 1))
        return NDP_OK;
    return b->input_grad(b, &ndp_op_gate_rows_dg, b->attr, (int[]){g, b->in[0], b->in[1]}, 3, (int[]){1}, 1, -1, NULL);
}

/* An exponential and a division for each gate. */
static void cost(const ndp_op_call *c, double *flops, double *bytes) {
    (void)bytes;
    *flops = ndp_elements(&c->in[0]) + 20 * ndp_elements(&c->in[1]);
}

const ndp_op ndp_op_gate_rows = {
    NDP_NAMED(gate_rows),
    .n_in = 2,
    .n_out = 1,
    .rows = NDP_ROWS_ALIKE,
    .shape = shape,
    .backward = backward,
    .cost = cost,
    NDP_FLOWS({.in = {NDP_IS(EITHER, 0, "tc"), NDP_IS(OPERAND, 1, "t1")}, .out = {NDP_IS(EITHER, 0, "tc")}}),
};

/* gate_rows_dg --------------------------------------------------------------------------------------------------- */

static ndp_status dg_shape(ndp_op_call *c) {
    NDP_SHAPE_SAME(c, c->in[0], c->in[1]);
    NDP_TRY(check_gate(c, &c->in[1], &c->in[2]));
    ndp_shape_like(&c->out[0], &c->in[2]);
    return NDP_OK;
}

static void dg_cost(const ndp_op_call *c, double *flops, double *bytes) {
    (void)bytes;
    *flops = 2 * ndp_elements(&c->in[0]) + 20 * ndp_elements(&c->in[2]);
}

const ndp_op ndp_op_gate_rows_dg = {
    NDP_NAMED(gate_rows_dg),
    .n_in = 3,
    .n_out = 1,
    .rows = NDP_ROWS_ALIKE,
    .shape = dg_shape,
    .cost = dg_cost,
    NDP_FLOWS({.node = &ndp_op_gate_rows,
               .in = {NDP_IS(D_RESULT, 0, "tC"), NDP_IS(OPERAND, 0, "tC"), NDP_IS(OPERAND, 1, "t1")},
               .out = {NDP_IS(D_OPERAND, 1, "t1")}}),
};

/* gate_by -------------------------------------------------------------------------------------------------------- */

static ndp_status by_backward(ndp_bwd *b) {
    int ins[] = {b->grad_out(b, 0), b->in[0], b->in[1]}, wanted[] = {b->wants(b, 0) ? 0 : -1, b->wants(b, 1) ? 1 : -1};
    if (ins[0] < 0 || (wanted[0] < 0 && wanted[1] < 0))
        return NDP_OK;
    return b->input_grad(b, &ndp_op_gate_by_bwd, b->attr, ins, 3, wanted, 2, -1, NULL);
}

const ndp_op ndp_op_gate_by = {
    NDP_NAMED(gate_by),
    .n_in = 2,
    .n_out = 1,
    .rows = NDP_ROWS_ALIKE,
    .shape = ndp_shape_alike,
    .backward = by_backward,
    .flops = 22,
    .reads = NDP_READS_sigmoid,
    NDP_FLOWS({.in = {NDP_IS(OPERAND, 0, "tc"), NDP_IS(OPERAND, 1, "tc")}, .out = {NDP_IS(RESULT, 0, "tc")}}),
};

static ndp_status by_bwd_shape(ndp_op_call *c) {
    NDP_TRY(ndp_shape_alike(c));
    ndp_shape_like(&c->out[1], &c->in[0]);
    return NDP_OK;
}

const ndp_op ndp_op_gate_by_bwd = {
    NDP_NAMED(gate_by_bwd),
    .n_in = 3,
    .n_out = 2,
    .rows = NDP_ROWS_ALIKE,
    .shape = by_bwd_shape,
    .flops = 28,
    .reads = NDP_READS_sigmoid,
    NDP_FLOWS({.node = &ndp_op_gate_by,
               .in = {NDP_IS(D_RESULT, 0, "tc"), NDP_IS(OPERAND, 0, "tc"), NDP_IS(OPERAND, 1, "tc")},
               .out = {NDP_IS(D_OPERAND, 0, "tc"), NDP_IS(D_OPERAND, 1, "tc")}}),
};
