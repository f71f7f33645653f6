/* y = x rstd w with rstd = (mean(x^2) + eps)^-1/2, alone or with the residual sum before it, and the gradients. Rows of
 * G times as many columns as w has are G runs, each normed by itself: heads, say. */
#include "ops/shape.h"

static ndp_status shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    (void)attr;
    NDP_SHAPE_CHECK(in[1].rows == 1 && in[0].cols % in[1].cols == 0 && in[1].dtype == in[0].dtype,
                    "rmsnorm: x " NDP_SHAPE ", w " NDP_SHAPE, NDP_SHAPE_ARGS(in[0]), NDP_SHAPE_ARGS(in[1]));
    ndp_shape_set(&out[0], in[0].rows, in[0].cols, in[0].dtype);
    ndp_shape_set(&out[1], in[0].rows, in[0].cols / in[1].cols, ndp_wide(in[0].dtype));
    return NDP_OK;
}

static ndp_status norm_dw(ndp_bwd *b, int g, int x, int rstd, int weight) {
    if (!b->wants(b, weight))
        return NDP_OK;
    return b->weight_grad(b, &ndp_op_rmsnorm_dw, b->attr, (int[]){g, x, rstd}, 3, weight);
}

static ndp_status backward(ndp_bwd *b) {
    int g = b->grad_out(b, 0), made;
    if (g < 0)
        return NDP_OK;
    if (b->wants(b, 0))
        NDP_TRY(b->input_grad(b, &ndp_op_rmsnorm_dx, b->attr, (int[]){g, b->in[0], b->in[1], b->out[1], -1}, 5,
                              (int[]){0}, 1, 4, &made));
    return norm_dw(b, g, b->in[0], b->out[1], 1);
}

static void cost(const ndp_op_call *c, double *flops, double *bytes) {
    ndp_cost_stream(c, 2, 2, &c->in[0], 4, flops, bytes);
}

const ndp_op ndp_op_rmsnorm = {
    .id = NDP_OP_rmsnorm,
    .name = "rmsnorm",
    .n_in = 2,
    .n_out = 2,
    .alias = -1,
    .rows = NDP_ROWS_ALIKE,
    .shape = shape,
    .backward = backward,
    .cost = cost,
};

static ndp_status dx_shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    (void)attr;
    NDP_SHAPE_SAME("rmsnorm_dx", in[0], in[1]);
    NDP_SHAPE_CHECK(in[2].cols * in[3].cols == in[0].cols && in[2].dtype == in[0].dtype && in[3].rows == in[0].rows,
                    "rmsnorm_dx: dy " NDP_SHAPE ", w " NDP_SHAPE ", rstd " NDP_SHAPE, NDP_SHAPE_ARGS(in[0]),
                    NDP_SHAPE_ARGS(in[2]), NDP_SHAPE_ARGS(in[3]));
    ndp_shape_set(&out[0], in[0].rows, in[0].cols, in[0].dtype);
    if (in[4].rows)
        NDP_SHAPE_SAME("rmsnorm_dx", in[4], out[0]);
    return NDP_OK;
}

static void dx_cost(const ndp_op_call *c, double *flops, double *bytes) {
    ndp_cost_stream(c, 5, 1, &c->in[0], 9, flops, bytes);
}

const ndp_op ndp_op_rmsnorm_dx = {
    .id = NDP_OP_rmsnorm_dx,
    .name = "rmsnorm_dx",
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
    NDP_SHAPE_SAME("rmsnorm_dw", in[0], in[1]);
    ndp_shape_set(&out[0], 1, in[0].cols / in[2].cols, ndp_wide(in[0].dtype));
    return NDP_OK;
}

static void dw_cost(const ndp_op_call *c, double *flops, double *bytes) {
    ndp_cost_stream(c, 3, 1, &c->in[0], 3, flops, bytes);
}

const ndp_op ndp_op_rmsnorm_dw = {
    .id = NDP_OP_rmsnorm_dw,
    .name = "rmsnorm_dw",
    .n_in = 3,
    .n_out = 1,
    .alias = -1,
    .rows = NDP_ROWS_SUMMED,
    .shape = dw_shape,
    .cost = dw_cost,
};

/* s = x + h, y = norm(s) ------------------------------------------------------------------------------------------- */

static ndp_status add_shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    NDP_SHAPE_SAME("add_rmsnorm", in[0], in[1]);
    ndp_shape_set(&out[0], in[0].rows, in[0].cols, in[0].dtype);
    return shape(attr, (ndp_view[]){in[0], in[2]}, &out[1]);
}

/* Both summands have the gradient of the sum; a gradient that arrives at s itself is added inside rmsnorm_dx. */
static ndp_status add_backward(ndp_bwd *b) {
    int at_s = b->grad_out(b, 0), at_y = b->grad_out(b, 1), given = -1;
    if (at_y < 0) {
        for (int i = 0; at_s >= 0 && i < 2; i++)
            if (b->wants(b, i))
                NDP_TRY(b->pass_grad(b, i, at_s));
        return NDP_OK;
    }
    int first = b->wants(b, 0) ? 0 : b->wants(b, 1) ? 1 : -1;
    if (first >= 0) {
        int ins[] = {at_y, b->out[0], b->in[2], b->out[2], at_s};
        NDP_TRY(b->input_grad(b, &ndp_op_rmsnorm_dx, b->attr, ins, 5, &first, 1, -1, &given));
    }
    if (first == 0 && b->wants(b, 1))
        NDP_TRY(b->pass_grad(b, 1, given));
    return norm_dw(b, at_y, b->out[0], b->out[2], 2);
}

static void add_cost(const ndp_op_call *c, double *flops, double *bytes) {
    ndp_cost_stream(c, 3, 3, &c->in[0], 5, flops, bytes);
}

const ndp_op ndp_op_add_rmsnorm = {
    .id = NDP_OP_add_rmsnorm,
    .name = "add_rmsnorm",
    .n_in = 3,
    .n_out = 3,
    .alias = -1,
    .rows = NDP_ROWS_ALIKE,
    .shape = add_shape,
    .backward = add_backward,
    .cost = add_cost,
};
