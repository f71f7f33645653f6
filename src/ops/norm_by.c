/* RMSNorm of rows whose columns several ranks have, in two ops with a sum over the ranks between them:
 *
 *   x -> mean_squares, of this rank's columns -> sum of the ranks' = m -> norm_by: y = x rstd w, rstd = (m + eps)^-1/2
 *
 * With g = dy w the gradient of m is -1/2 rstd^3 sum(g x), summed over the ranks like m, and dx = g rstd + 2 c x dm
 * where mean_squares is c sum(x^2).
 * The first part of dx is kept wide, so that dx is rounded once, as that of rmsnorm is. */
#include "ops/shape.h"

static bool is_column_of(const ndp_view *v, const ndp_view *x) {
    return v->rows == x->rows && v->cols == 1 && v->dtype == ndp_wide(x->dtype);
}

/* mean_squares --------------------------------------------------------------------------------------------------- */

static ndp_status squares_shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    (void)attr;
    ndp_shape_set(&out[0], in[0].rows, 1, ndp_wide(in[0].dtype));
    return NDP_OK;
}

static ndp_status squares_backward(ndp_bwd *b) {
    int g = b->grad_out(b, 0), made;
    if (g < 0 || !b->wants(b, 0))
        return NDP_OK;
    return b->input_grad(b, &ndp_op_mean_squares_dx, b->attr, (int[]){g, b->in[0], -1}, 3, (int[]){0}, 1, 2, &made);
}

static void squares_cost(const ndp_op_call *c, double *flops, double *bytes) {
    ndp_cost_stream(c, 1, 1, &c->in[0], 2, flops, bytes);
}

const ndp_op ndp_op_mean_squares = {
    .id = NDP_OP_mean_squares,
    .name = "mean_squares",
    .n_in = 1,
    .n_out = 1,
    .alias = -1,
    .rows = NDP_ROWS_ALIKE,
    .shape = squares_shape,
    .backward = squares_backward,
    .cost = squares_cost,
};

static ndp_status squares_dx_shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    (void)attr;
    NDP_SHAPE_CHECK(is_column_of(&in[0], &in[1]), "mean_squares_dx: dm " NDP_SHAPE ", x " NDP_SHAPE,
                    NDP_SHAPE_ARGS(in[0]), NDP_SHAPE_ARGS(in[1]));
    ndp_shape_set(&out[0], in[1].rows, in[1].cols, in[1].dtype);
    if (in[2].rows)
        NDP_SHAPE_CHECK(in[2].rows == out[0].rows && in[2].cols == out[0].cols &&
                            (in[2].dtype == out[0].dtype || in[2].dtype == ndp_wide(out[0].dtype)),
                        "mean_squares_dx: acc " NDP_SHAPE ", dx " NDP_SHAPE, NDP_SHAPE_ARGS(in[2]),
                        NDP_SHAPE_ARGS(out[0]));
    return NDP_OK;
}

static void squares_dx_cost(const ndp_op_call *c, double *flops, double *bytes) {
    ndp_cost_stream(c, 3, 1, &c->in[1], 2, flops, bytes);
}

const ndp_op ndp_op_mean_squares_dx = {
    .id = NDP_OP_mean_squares_dx,
    .name = "mean_squares_dx",
    .n_in = 3,
    .n_out = 1,
    .optional_in = 1u << 2,
    .alias = -1,
    .rows = NDP_ROWS_ALIKE,
    .shape = squares_dx_shape,
    .cost = squares_dx_cost,
};

/* norm_by -------------------------------------------------------------------------------------------------------- */

static ndp_status shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    (void)attr;
    NDP_SHAPE_CHECK(in[1].rows == 1 && in[1].cols == in[0].cols && in[1].dtype == in[0].dtype &&
                        is_column_of(&in[2], &in[0]),
                    "norm_by: x " NDP_SHAPE ", w " NDP_SHAPE ", m " NDP_SHAPE, NDP_SHAPE_ARGS(in[0]),
                    NDP_SHAPE_ARGS(in[1]), NDP_SHAPE_ARGS(in[2]));
    ndp_shape_set(&out[0], in[0].rows, in[0].cols, in[0].dtype);
    ndp_shape_set(&out[1], in[0].rows, 1, in[2].dtype);
    return NDP_OK;
}

static ndp_status backward(ndp_bwd *b) {
    int g = b->grad_out(b, 0), made[2];
    if (g < 0)
        return NDP_OK;
    int outs[] = {b->wants(b, 0) ? 0 : -1, b->wants(b, 2) ? 2 : -1};
    if (outs[0] >= 0 || outs[1] >= 0)
        NDP_TRY(b->input_grad(b, &ndp_op_norm_by_dx, b->attr, (int[]){g, b->in[0], b->in[1], b->out[1]}, 4, outs, 2, -1,
                              made));
    if (!b->wants(b, 1))
        return NDP_OK;
    return b->weight_grad(b, &ndp_op_rmsnorm_dw, b->attr, (int[]){g, b->in[0], b->out[1]}, 3, 1);
}

static void cost(const ndp_op_call *c, double *flops, double *bytes) {
    ndp_cost_stream(c, 3, 2, &c->in[0], 2, flops, bytes);
}

const ndp_op ndp_op_norm_by = {
    .id = NDP_OP_norm_by,
    .name = "norm_by",
    .n_in = 3,
    .n_out = 2,
    .alias = -1,
    .rows = NDP_ROWS_ALIKE,
    .shape = shape,
    .backward = backward,
    .cost = cost,
};

static ndp_status dx_shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    (void)attr;
    NDP_SHAPE_SAME("norm_by_dx", in[0], in[1]);
    NDP_SHAPE_CHECK(in[2].cols == in[0].cols && is_column_of(&in[3], &in[0]),
                    "norm_by_dx: dy " NDP_SHAPE ", w " NDP_SHAPE ", rstd " NDP_SHAPE, NDP_SHAPE_ARGS(in[0]),
                    NDP_SHAPE_ARGS(in[2]), NDP_SHAPE_ARGS(in[3]));
    ndp_shape_set(&out[0], in[0].rows, in[0].cols, in[3].dtype);
    ndp_shape_set(&out[1], in[0].rows, 1, in[3].dtype);
    return NDP_OK;
}

static void dx_cost(const ndp_op_call *c, double *flops, double *bytes) {
    ndp_cost_stream(c, 4, 2, &c->in[0], 5, flops, bytes);
}

const ndp_op ndp_op_norm_by_dx = {
    .id = NDP_OP_norm_by_dx,
    .name = "norm_by_dx",
    .n_in = 4,
    .n_out = 2,
    .alias = -1,
    .rows = NDP_ROWS_ALIKE,
    .shape = dx_shape,
    .cost = dx_cost,
};
