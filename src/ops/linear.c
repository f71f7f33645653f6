/* y = x w^T + b, and its gradients. */
#include "ops/shape.h"

static void product_cost(const ndp_op_call *c, int64_t k, int n_in, double *flops, double *bytes) {
    ndp_cost_stream(c, n_in, 1, &c->out[0], 2.0 * (double)k, flops, bytes);
}

static ndp_status forward_shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    (void)attr;
    NDP_SHAPE_CHECK(in[0].cols == in[1].cols && in[0].dtype == in[1].dtype, "linear: x " NDP_SHAPE ", w " NDP_SHAPE,
                    NDP_SHAPE_ARGS(in[0]), NDP_SHAPE_ARGS(in[1]));
    NDP_SHAPE_CHECK(!in[2].rows || (in[2].rows == 1 && in[2].cols == in[1].rows && in[2].dtype == in[0].dtype),
                    "linear: bias " NDP_SHAPE " for w " NDP_SHAPE, NDP_SHAPE_ARGS(in[2]), NDP_SHAPE_ARGS(in[1]));
    ndp_shape_set(&out[0], in[0].rows, in[1].rows, in[0].dtype);
    return NDP_OK;
}

static ndp_status backward(ndp_bwd *b) {
    int g = b->grad_out(b, 0), made;
    if (g < 0)
        return NDP_OK;
    if (b->wants(b, 0))
        NDP_TRY(b->input_grad(b, &ndp_op_linear_dx, b->attr, (int[]){g, b->in[1], -1}, 3, (int[]){0}, 1, 2, &made));
    if (b->wants(b, 1))
        NDP_TRY(b->weight_grad(b, &ndp_op_linear_dw, b->attr, (int[]){g, b->in[0]}, 2, 1));
    if (b->in[2] >= 0 && b->wants(b, 2))
        NDP_TRY(b->weight_grad(b, &ndp_op_linear_db, b->attr, (int[]){g}, 1, 2));
    return NDP_OK;
}

static void forward_cost(const ndp_op_call *c, double *flops, double *bytes) {
    product_cost(c, c->in[0].cols, 3, flops, bytes);
}

const ndp_op ndp_op_linear = {
    .id = NDP_OP_linear,
    .name = "linear",
    .n_in = 3,
    .n_out = 1,
    .optional_in = 1u << 2,
    .alias = -1,
    .rows = NDP_ROWS_ALIKE,
    .shape = forward_shape,
    .backward = backward,
    .cost = forward_cost,
};

static ndp_status dx_shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    NDP_SHAPE_CHECK(in[0].cols == in[1].rows && in[0].dtype == in[1].dtype, "linear_dx: dy " NDP_SHAPE ", w " NDP_SHAPE,
                    NDP_SHAPE_ARGS(in[0]), NDP_SHAPE_ARGS(in[1]));
    ndp_shape_set(&out[0], in[0].rows, in[1].cols, attr->wide_grad ? ndp_wide(in[0].dtype) : in[0].dtype);
    if (in[2].rows)
        NDP_SHAPE_SAME("linear_dx", in[2], out[0]);
    return NDP_OK;
}

static void dx_cost(const ndp_op_call *c, double *flops, double *bytes) {
    product_cost(c, c->in[0].cols, 3, flops, bytes);
}

const ndp_op ndp_op_linear_dx = {
    .id = NDP_OP_linear_dx,
    .name = "linear_dx",
    .n_in = 3,
    .n_out = 1,
    .optional_in = 1u << 2,
    .alias = -1,
    .rows = NDP_ROWS_ALIKE,
    .shape = dx_shape,
    .cost = dx_cost,
};

static ndp_status dw_shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    (void)attr;
    NDP_SHAPE_CHECK(in[0].rows == in[1].rows && in[0].dtype == in[1].dtype, "linear_dw: dy " NDP_SHAPE ", x " NDP_SHAPE,
                    NDP_SHAPE_ARGS(in[0]), NDP_SHAPE_ARGS(in[1]));
    ndp_shape_set(&out[0], in[0].cols, in[1].cols, ndp_wide(in[0].dtype));
    return NDP_OK;
}

static void dw_cost(const ndp_op_call *c, double *flops, double *bytes) {
    product_cost(c, c->in[0].rows, 2, flops, bytes);
}

const ndp_op ndp_op_linear_dw = {
    .id = NDP_OP_linear_dw,
    .name = "linear_dw",
    .n_in = 2,
    .n_out = 1,
    .alias = -1,
    .rows = NDP_ROWS_SUMMED,
    .shape = dw_shape,
    .cost = dw_cost,
};

static ndp_status db_shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    (void)attr;
    ndp_shape_set(&out[0], 1, in[0].cols, ndp_wide(in[0].dtype));
    return NDP_OK;
}

static void db_cost(const ndp_op_call *c, double *flops, double *bytes) {
    ndp_cost_stream(c, 1, 1, &c->in[0], 1, flops, bytes);
}

const ndp_op ndp_op_linear_db = {
    .id = NDP_OP_linear_db,
    .name = "linear_db",
    .n_in = 1,
    .n_out = 1,
    .alias = -1,
    .rows = NDP_ROWS_SUMMED,
    .shape = db_shape,
    .cost = db_cost,
};
