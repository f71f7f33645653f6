/* y = (x - mean) rstd w + b with rstd = (var(x) + eps)^-1/2, and the gradients (arXiv:1607.06450). */
#include "ops/shape.h"

enum { STATS = 2 }; /* columns: mean, rstd */

static bool is_row_of(const ndp_view *v, const ndp_view *x) {
    return v->rows == 1 && v->cols == x->cols && v->dtype == x->dtype;
}

static ndp_status shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    (void)attr;
    NDP_SHAPE_CHECK(is_row_of(&in[1], &in[0]) && (!in[2].rows || is_row_of(&in[2], &in[0])),
                    "layernorm: x " NDP_SHAPE ", w " NDP_SHAPE ", b " NDP_SHAPE, NDP_SHAPE_ARGS(in[0]),
                    NDP_SHAPE_ARGS(in[1]), NDP_SHAPE_ARGS(in[2]));
    ndp_shape_set(&out[0], in[0].rows, in[0].cols, in[0].dtype);
    ndp_shape_set(&out[1], in[0].rows, STATS, ndp_wide(in[0].dtype));
    return NDP_OK;
}

static ndp_status backward(ndp_bwd *b) {
    int g = b->grad_out(b, 0), made;
    if (g < 0)
        return NDP_OK;
    if (b->wants(b, 0))
        NDP_TRY(b->input_grad(b, &ndp_op_layernorm_dx, b->attr, (int[]){g, b->in[0], b->in[1], b->out[1], -1}, 5,
                              (int[]){0}, 1, 4, &made));
    if (b->wants(b, 1))
        NDP_TRY(b->weight_grad(b, &ndp_op_layernorm_dw, b->attr, (int[]){g, b->in[0], b->out[1]}, 3, 1));
    if (b->in[2] >= 0 && b->wants(b, 2))
        NDP_TRY(b->weight_grad(b, &ndp_op_linear_db, b->attr, (int[]){g}, 1, 2));
    return NDP_OK;
}

static void cost(const ndp_op_call *c, double *flops, double *bytes) {
    ndp_cost_stream(c, 3, 2, &c->in[0], 7, flops, bytes);
}

const ndp_op ndp_op_layernorm = {
    .id = NDP_OP_layernorm,
    .name = "layernorm",
    .n_in = 3,
    .n_out = 2,
    .optional_in = 1u << 2,
    .alias = -1,
    .rows = NDP_ROWS_ALIKE,
    .shape = shape,
    .backward = backward,
    .cost = cost,
};

static ndp_status dx_shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    (void)attr;
    NDP_SHAPE_SAME("layernorm_dx", in[0], in[1]);
    NDP_SHAPE_CHECK(is_row_of(&in[2], &in[0]) && in[3].rows == in[0].rows && in[3].cols == STATS,
                    "layernorm_dx: dy " NDP_SHAPE ", w " NDP_SHAPE ", stats " NDP_SHAPE, NDP_SHAPE_ARGS(in[0]),
                    NDP_SHAPE_ARGS(in[2]), NDP_SHAPE_ARGS(in[3]));
    ndp_shape_set(&out[0], in[0].rows, in[0].cols, in[0].dtype);
    if (in[4].rows)
        NDP_SHAPE_SAME("layernorm_dx", in[4], out[0]);
    return NDP_OK;
}

static void dx_cost(const ndp_op_call *c, double *flops, double *bytes) {
    ndp_cost_stream(c, 5, 1, &c->in[0], 12, flops, bytes);
}

const ndp_op ndp_op_layernorm_dx = {
    .id = NDP_OP_layernorm_dx,
    .name = "layernorm_dx",
    .n_in = 5,
    .n_out = 1,
    .optional_in = 1u << 4,
    .alias = -1,
    .rows = NDP_ROWS_ALIKE,
    .shape = dx_shape,
    .cost = dx_cost,
};

static ndp_status dw_shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    (void)attr;
    NDP_SHAPE_SAME("layernorm_dw", in[0], in[1]);
    NDP_SHAPE_CHECK(in[2].rows == in[0].rows && in[2].cols == STATS, "layernorm_dw: stats " NDP_SHAPE,
                    NDP_SHAPE_ARGS(in[2]));
    ndp_shape_set(&out[0], 1, in[0].cols, ndp_wide(in[0].dtype));
    return NDP_OK;
}

static void dw_cost(const ndp_op_call *c, double *flops, double *bytes) {
    ndp_cost_stream(c, 3, 1, &c->in[0], 4, flops, bytes);
}

const ndp_op ndp_op_layernorm_dw = {
    .id = NDP_OP_layernorm_dw,
    .name = "layernorm_dw",
    .n_in = 3,
    .n_out = 1,
    .alias = -1,
    .rows = NDP_ROWS_SUMMED,
    .shape = dw_shape,
    .cost = dw_cost,
};
