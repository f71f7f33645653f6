/* c = a + b, of equal matrices, of a matrix and a row, or of some columns of a matrix and another one. */
#include "ops/flow.h"
#include "ops/shape.h"

static ndp_status backward(ndp_bwd *b) {
    NDP_TRY(ndp_pass_grad(b, 0));
    return ndp_pass_grad(b, 1);
}

const ndp_op ndp_op_add = {
    NDP_NAMED(add),
    .n_in = 2,
    .n_out = 1,
    .rows = NDP_ROWS_ALIKE,
    .shape = ndp_shape_alike,
    .backward = backward,
    .flops = 1,
    NDP_FLOWS({.sum = true},
              {.in = {NDP_IS(OPERAND, 0, "tc"), NDP_IS(OPERAND, 1, "tc")}, .out = {NDP_IS(RESULT, 0, "tc")}}),
};

/* y += b, b one row for all -------------------------------------------------------------------------------------- */

static ndp_status bias_shape(ndp_op_call *c) {
    const ndp_view *y = &c->in[0], *b = &c->in[1];
    NDP_SHAPE_CHECK(b->rows == 1 && b->cols == y->cols && ndp_wide(b->dtype) == ndp_wide(y->dtype),
                    "add_bias: y " NDP_SHAPE ", b " NDP_SHAPE, NDP_SHAPE_ARGS(*y), NDP_SHAPE_ARGS(*b));
    ndp_shape_like(&c->out[0], y);
    return NDP_OK;
}

static ndp_status bias_backward(ndp_bwd *b) {
    NDP_TRY(ndp_pass_grad(b, 0));
    return ndp_weight_grad(b, 1, &ndp_op_linear_db, (int[]){b->grad_out(b, 0)}, 1);
}

const ndp_op ndp_op_add_bias = {
    NDP_NAMED(add_bias),
    .n_in = 2,
    .n_out = 1,
    .in_place = true,
    .rows = NDP_ROWS_ALIKE,
    .shape = bias_shape,
    .backward = bias_backward,
    .flops = 1,
    NDP_FLOWS({.in = {NDP_IS(OPERAND, 0, "tc"), NDP_IS(OPERAND, 1, "1c")}, .out = {NDP_IS(RESULT, 0, "tc")}},
              {.node = &ndp_op_linear,
               .in = {NDP_IS(PRODUCT, 0, "tc"), NDP_IS(OPERAND, 2, "1c")},
               .out = {NDP_IS(RESULT, 0, "tc")}}),
};

/* columns first .. of y += z ------------------------------------------------------------------------------------- */

static ndp_status columns_shape(ndp_op_call *c) {
    const ndp_view *y = &c->in[0], *z = &c->in[1];
    int64_t first = c->attr->first;
    NDP_SHAPE_CHECK(z->rows == y->rows && z->dtype == y->dtype && first >= 0 && first + z->cols <= y->cols,
                    "add_columns: z " NDP_SHAPE " from column %lld of y " NDP_SHAPE, NDP_SHAPE_ARGS(*z),
                    (long long)first, NDP_SHAPE_ARGS(*y));
    ndp_shape_like(&c->out[0], y);
    return NDP_OK;
}

/* The gradient of z is columns of that of y: nothing is computed. */
static ndp_status columns_backward(ndp_bwd *b) {
    int g = b->grad_out(b, 0);
    NDP_TRY(ndp_pass_grad(b, 0));
    return g >= 0 && b->wants(b, 1) ? b->pass_grad(b, 1, b->columns(b, g, b->attr->first, 1)) : NDP_OK;
}

static void columns_cost(const ndp_op_call *c, double *flops, double *bytes) {
    *flops = ndp_elements(&c->in[1]);
    *bytes = 3 * ndp_view_bytes(&c->in[1]);
}

const ndp_op ndp_op_add_columns = {
    NDP_NAMED(add_columns),
    .n_in = 2,
    .n_out = 1,
    .in_place = true,
    .rows = NDP_ROWS_ALIKE,
    .shape = columns_shape,
    .backward = columns_backward,
    .cost = columns_cost,
    .reads = NDP_READS_first,
    NDP_FLOWS({.in = {NDP_IS(PART, 0, "tc"), NDP_IS(PART, 1, "t.")}, .out = {NDP_IS(RESULT, 0, "tc")}}),
};
