/* y = x w^T + b, and its gradients. */
#include "ops/flow.h"
#include "ops/shape.h"

/* Of a product of in[0] with another operand: every element of in[0] meets each column of the result. */
static void product_cost(const ndp_op_call *c, double *flops, double *bytes) {
    (void)bytes;
    *flops = 2 * ndp_elements(&c->in[0]) * (double)c->out[0].cols;
}

static ndp_status forward_shape(ndp_op_call *c) {
    const ndp_view *x = &c->in[0], *w = &c->in[1], *b = &c->in[2];
    NDP_SHAPE_CHECK(x->cols == w->cols && x->dtype == w->dtype, "linear: x " NDP_SHAPE ", w " NDP_SHAPE,
                    NDP_SHAPE_ARGS(*x), NDP_SHAPE_ARGS(*w));
    NDP_SHAPE_CHECK(!b->rows || (b->rows == 1 && b->cols == w->rows && b->dtype == x->dtype),
                    "linear: bias " NDP_SHAPE " for w " NDP_SHAPE, NDP_SHAPE_ARGS(*b), NDP_SHAPE_ARGS(*w));
    ndp_shape_set(&c->out[0], x->rows, w->rows, x->dtype);
    return NDP_OK;
}

static ndp_status backward(ndp_bwd *b) {
    int g = b->grad_out(b, 0);
    NDP_TRY(ndp_input_grad(b, &ndp_op_linear_dx, b->attr, (int[]){g, b->in[1], -1}, 3, 2));
    NDP_TRY(ndp_weight_grad(b, 1, &ndp_op_linear_dw, (int[]){g, b->in[0]}, 2));
    return ndp_weight_grad(b, 2, &ndp_op_linear_db, (int[]){g}, 1);
}

const ndp_op ndp_op_linear = {
    NDP_NAMED(linear),
    .n_in = 3,
    .n_out = 1,
    .optional_in = 1u << 2,
    .rows = NDP_ROWS_ALIKE,
    .shape = forward_shape,
    .backward = backward,
    .cost = product_cost,
    .reads = NDP_READS_wide_grad,
    NDP_FLOWS({.in = {NDP_IS(PART, 0, "tk"), NDP_IS(OPERAND, 1, "nk"), NDP_IS(BIAS, 2, "1n")},
               .out = {NDP_IS(RESULT, 0, "tn")}},
              {.node = &ndp_op_row_loss,
               .in = {NDP_IS(OPERAND, 0, "tC"), NDP_IS(OPERAND, 1, "nC")},
               .out = {NDP_IS(LOGITS, 0, "tn")}}),
};

/* The gradient of a wide result of narrow operands is wide. */
static bool of_type(const ndp_view *dy, ndp_dtype operands) {
    return dy->dtype == operands || dy->dtype == ndp_wide(operands);
}

static ndp_status dx_shape(ndp_op_call *c) {
    const ndp_view *dy = &c->in[0], *w = &c->in[1];
    NDP_SHAPE_CHECK(dy->cols == w->rows && of_type(dy, w->dtype), "linear_dx: dy " NDP_SHAPE ", w " NDP_SHAPE,
                    NDP_SHAPE_ARGS(*dy), NDP_SHAPE_ARGS(*w));
    ndp_shape_set(&c->out[0], dy->rows, w->cols, c->attr->wide_grad ? ndp_wide(w->dtype) : w->dtype);
    return ndp_shape_acc(c, 2);
}

const ndp_op ndp_op_linear_dx = {
    NDP_NAMED(linear_dx),
    .n_in = 3,
    .n_out = 1,
    .optional_in = 1u << 2,
    .rows = NDP_ROWS_ALIKE,
    .shape = dx_shape,
    .cost = product_cost,
    .reads = NDP_READS_wide_grad,
    NDP_FLOWS({.node = &ndp_op_linear,
               .in = {NDP_IS(D_RESULT, 0, "tn"), NDP_IS(OPERAND, 1, "nk"), NDP_IS(EARLIER, 0, "..")},
               .out = {NDP_IS(D_OPERAND, 0, "tk")}},
              {.node = &ndp_op_row_loss,
               .in = {NDP_IS(SLOPES, 0, "tn"), NDP_IS(OPERAND, 1, "nC")},
               .out = {NDP_IS(D_OPERAND, 0, "tC")}}),
};

static ndp_status dw_shape(ndp_op_call *c) {
    const ndp_view *dy = &c->in[0], *x = &c->in[1];
    NDP_SHAPE_CHECK(dy->rows == x->rows && of_type(dy, x->dtype), "linear_dw: dy " NDP_SHAPE ", x " NDP_SHAPE,
                    NDP_SHAPE_ARGS(*dy), NDP_SHAPE_ARGS(*x));
    ndp_shape_set(&c->out[0], dy->cols, x->cols, ndp_wide(dy->dtype));
    return NDP_OK;
}

const ndp_op ndp_op_linear_dw = {
    NDP_NAMED(linear_dw),
    .n_in = 2,
    .n_out = 1,
    .rows = NDP_ROWS_SUMMED,
    .shape = dw_shape,
    .cost = product_cost,
    NDP_FLOWS({.node = &ndp_op_linear,
               .in = {NDP_IS(D_RESULT, 0, "tn"), NDP_IS(OPERAND, 0, "tk")},
               .out = {NDP_IS(D_OPERAND, 1, "nk")}},
              {.node = &ndp_op_row_loss,
               .in = {NDP_IS(SLOPES, 0, "tn"), NDP_IS(OPERAND, 0, "tC")},
               .out = {NDP_IS(D_OPERAND, 1, "nC")}}),
};

static ndp_status db_shape(ndp_op_call *c) {
    ndp_shape_set(&c->out[0], 1, c->in[0].cols, ndp_wide(c->in[0].dtype));
    return NDP_OK;
}

const ndp_op ndp_op_linear_db = {
    NDP_NAMED(linear_db),
    .n_in = 1,
    .n_out = 1,
    .rows = NDP_ROWS_SUMMED,
    .shape = db_shape,
    .flops = 1,
    NDP_FLOWS({.node = &ndp_op_linear, .in = {NDP_IS(D_RESULT, 0, "tn")}, .out = {NDP_IS(D_OPERAND, 2, "1n")}},
              {.node = &ndp_op_layernorm, .in = {NDP_IS(D_RESULT, 0, "tn")}, .out = {NDP_IS(D_OPERAND, 2, "1n")}},
              {.node = &ndp_op_add_bias, .in = {NDP_IS(D_RESULT, 0, "tn")}, .out = {NDP_IS(D_OPERAND, 1, "1n")}}),
};
