/* c = a + b, of equal matrices or of a matrix and a row. */
#include "ops/cpu/rows.h"
#include "ops/shape.h"

static ndp_status shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    (void)attr;
    NDP_SHAPE_SAME("add", in[0], in[1]);
    ndp_shape_set(&out[0], in[0].rows, in[0].cols, in[0].dtype);
    return NDP_OK;
}

static ndp_status backward(ndp_bwd *b) {
    int g = b->grad_out(b, 0);
    for (int i = 0; g >= 0 && i < 2; i++)
        if (b->wants(b, i))
            NDP_TRY(b->pass_grad(b, i, g));
    return NDP_OK;
}

static void cost(const ndp_op_call *c, double *flops, double *bytes) {
    ndp_cost_stream(c, 2, 1, &c->out[0], 1, flops, bytes);
}

static void kernel_ref(const ndp_op_call *c) {
    for (int64_t t = 0; t < c->out[0].rows; t++)
        for (int64_t j = 0; j < c->out[0].cols; j++)
            ndp_view_set(&c->out[0], t, j, ndp_view_get(&c->in[0], t, j) + ndp_view_get(&c->in[1], t, j));
}

static void kernel_cpu(const ndp_op_call *c) { ndp_rows_run(c, c->out[0].rows, ndp_rows_best()->add); }

const ndp_op ndp_op_add = {
    .name = "add",
    .n_in = 2,
    .n_out = 1,
    .alias = -1,
    .shape = shape,
    .backward = backward,
    .cost = cost,
    .kernel = {kernel_cpu, kernel_ref},
};

/* y += b, b one row for all -------------------------------------------------------------------------------------- */

static ndp_status bias_shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    (void)attr;
    NDP_SHAPE_CHECK(in[1].rows == 1 && in[1].cols == in[0].cols && ndp_wide(in[1].dtype) == ndp_wide(in[0].dtype),
                    "add_bias: y " NDP_SHAPE ", b " NDP_SHAPE, NDP_SHAPE_ARGS(in[0]), NDP_SHAPE_ARGS(in[1]));
    ndp_shape_set(&out[0], in[0].rows, in[0].cols, in[0].dtype);
    return NDP_OK;
}

static ndp_status bias_backward(ndp_bwd *b) {
    int g = b->grad_out(b, 0);
    if (g < 0)
        return NDP_OK;
    if (b->wants(b, 0))
        NDP_TRY(b->pass_grad(b, 0, g));
    return b->wants(b, 1) ? b->weight_grad(b, &ndp_op_linear_db, b->attr, (int[]){g}, 1, 1) : NDP_OK;
}

static void bias_cost(const ndp_op_call *c, double *flops, double *bytes) {
    ndp_cost_stream(c, 2, 1, &c->out[0], 1, flops, bytes);
}

static void bias_ref(const ndp_op_call *c) {
    const ndp_view *y = &c->in[0];
    for (int64_t t = 0; t < y->rows; t++)
        for (int64_t j = 0; j < y->cols; j++)
            ndp_view_set(y, t, j, ndp_view_get(y, t, j) + ndp_view_get(&c->in[1], 0, j));
}

static void bias_cpu(const ndp_op_call *c) { ndp_rows_run(c, c->in[0].rows, ndp_rows_best()->add_bias); }

const ndp_op ndp_op_add_bias = {
    .name = "add_bias",
    .n_in = 2,
    .n_out = 1,
    .alias = 0,
    .shape = bias_shape,
    .backward = bias_backward,
    .cost = bias_cost,
    .kernel = {bias_cpu, bias_ref},
};
