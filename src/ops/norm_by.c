/* RMSNorm of rows whose columns several ranks have, in two ops with a sum over the ranks between them:
 *
 *   x -> mean_squares, of this rank's columns -> sum of the ranks' = m -> norm_by: y = x rstd w, rstd = (m + eps)^-1/2
 *
 * With g = dy w the gradient of m is -1/2 rstd^3 sum(g x), summed over the ranks like m, and dx = g rstd + 2 c x dm
 * where mean_squares is c sum(x^2).
 * The first part of dx is kept wide, so that dx is rounded once, as that of rmsnorm is. */
#include "ops/flow.h"
#include "ops/shape.h"

static bool is_column_of(const ndp_view *v, const ndp_view *x) {
    return v->rows == x->rows && v->cols == 1 && v->dtype == ndp_wide(x->dtype);
}

/* mean_squares --------------------------------------------------------------------------------------------------- */

static ndp_status squares_shape(ndp_op_call *c) {
    ndp_shape_set(&c->out[0], c->in[0].rows, 1, ndp_wide(c->in[0].dtype));
    return NDP_OK;
}

static ndp_status squares_backward(ndp_bwd *b) {
    return ndp_input_grad(b, &ndp_op_mean_squares_dx, b->attr, (int[]){b->grad_out(b, 0), b->in[0], -1}, 3, 2);
}

const ndp_op ndp_op_mean_squares = {
    NDP_NAMED(mean_squares),
    .n_in = 1,
    .n_out = 1,
    .rows = NDP_ROWS_ALIKE,
    .shape = squares_shape,
    .backward = squares_backward,
    .flops = 2,
    .reads = NDP_READS_scale,
    NDP_FLOWS({.node = &ndp_op_rmsnorm,
               .runs = NDP_RUNS_ONE,
               .in = {NDP_IS(OPERAND, 0, "tc")},
               .out = {NDP_IS(SQUARES, 0, "t1", .times = NDP_TIMES_COPIES)}}),
};

static ndp_status squares_dx_shape(ndp_op_call *c) {
    const ndp_view *dm = &c->in[0], *x = &c->in[1], *acc = &c->in[2];
    NDP_SHAPE_CHECK(is_column_of(dm, x), "mean_squares_dx: dm " NDP_SHAPE ", x " NDP_SHAPE, NDP_SHAPE_ARGS(*dm),
                    NDP_SHAPE_ARGS(*x));
    ndp_shape_like(&c->out[0], x);
    NDP_SHAPE_CHECK(!acc->rows || (acc->rows == x->rows && acc->cols == x->cols &&
                                   (acc->dtype == x->dtype || acc->dtype == ndp_wide(x->dtype))),
                    "mean_squares_dx: acc " NDP_SHAPE ", dx " NDP_SHAPE, NDP_SHAPE_ARGS(*acc), NDP_SHAPE_ARGS(*x));
    return NDP_OK;
}

static void squares_dx_cost(const ndp_op_call *c, double *flops, double *bytes) {
    (void)bytes;
    *flops = 2 * ndp_elements(&c->in[1]);
}

const ndp_op ndp_op_mean_squares_dx = {
    NDP_NAMED(mean_squares_dx),
    .n_in = 3,
    .n_out = 1,
    .optional_in = 1u << 2,
    .rows = NDP_ROWS_ALIKE,
    .shape = squares_dx_shape,
    .cost = squares_dx_cost,
    .reads = NDP_READS_scale,
    NDP_FLOWS({.node = &ndp_op_rmsnorm,
               .runs = NDP_RUNS_ONE,
               .in = {NDP_IS(D_SQUARES, 0, "t1"), NDP_IS(OPERAND, 0, "tc"), NDP_IS(EARLIER, 0, "..")},
               .out = {NDP_IS(D_OPERAND, 0, "tc", .times = NDP_TIMES_INDIRECT)}}),
};

/* norm_by -------------------------------------------------------------------------------------------------------- */

static ndp_status shape(ndp_op_call *c) {
    const ndp_view *x = &c->in[0], *w = &c->in[1], *m = &c->in[2];
    NDP_SHAPE_CHECK(w->rows == 1 && w->cols == x->cols && w->dtype == x->dtype && is_column_of(m, x),
                    "norm_by: x " NDP_SHAPE ", w " NDP_SHAPE ", m " NDP_SHAPE, NDP_SHAPE_ARGS(*x), NDP_SHAPE_ARGS(*w),
                    NDP_SHAPE_ARGS(*m));
    ndp_shape_like(&c->out[0], x);
    ndp_shape_like(&c->out[1], m);
    return NDP_OK;
}

static ndp_status backward(ndp_bwd *b) {
    int g = b->grad_out(b, 0), outs[] = {b->wants(b, 0) ? 0 : -1, b->wants(b, 2) ? 2 : -1};
    if (g >= 0 && (outs[0] >= 0 || outs[1] >= 0))
        NDP_TRY(b->input_grad(b, &ndp_op_norm_by_dx, b->attr, (int[]){g, b->in[0], b->in[1], b->out[1]}, 4, outs, 2, -1,
                              NULL));
    return ndp_weight_grad(b, 1, &ndp_op_rmsnorm_dw, (int[]){g, b->in[0], b->out[1]}, 3);
}

const ndp_op ndp_op_norm_by = {
    NDP_NAMED(norm_by),
    .n_in = 3,
    .n_out = 2,
    .rows = NDP_ROWS_ALIKE,
    .shape = shape,
    .backward = backward,
    .flops = 2,
    .reads = NDP_READS_eps | NDP_READS_unit_offset,
    NDP_FLOWS({.node = &ndp_op_rmsnorm,
               .runs = NDP_RUNS_ONE,
               .in = {NDP_IS(OPERAND, 0, "tc"), NDP_IS(OPERAND, 1, "1c"), NDP_IS(SQUARES, 0, "t1")},
               .out = {NDP_IS(RESULT, 0, "tc"), NDP_IS(RESULT, 1, "t1", .times = NDP_TIMES_UNSUMMED)}}),
};

static ndp_status dx_shape(ndp_op_call *c) {
    const ndp_view *dy = &c->in[0], *w = &c->in[2], *rstd = &c->in[3];
    NDP_SHAPE_SAME(c, *dy, c->in[1]);
    NDP_SHAPE_CHECK(w->cols == dy->cols && is_column_of(rstd, dy),
                    "norm_by_dx: dy " NDP_SHAPE ", w " NDP_SHAPE ", rstd " NDP_SHAPE, NDP_SHAPE_ARGS(*dy),
                    NDP_SHAPE_ARGS(*w), NDP_SHAPE_ARGS(*rstd));
    ndp_shape_set(&c->out[0], dy->rows, dy->cols, rstd->dtype);
    ndp_shape_like(&c->out[1], rstd);
    return NDP_OK;
}

const ndp_op ndp_op_norm_by_dx = {
    NDP_NAMED(norm_by_dx),
    .n_in = 4,
    .n_out = 2,
    .rows = NDP_ROWS_ALIKE,
    .shape = dx_shape,
    .flops = 5,
    .reads = NDP_READS_unit_offset,
    NDP_FLOWS(
        {.node = &ndp_op_rmsnorm,
         .runs = NDP_RUNS_ONE,
         .in = {NDP_IS(D_RESULT, 0, "tc"), NDP_IS(OPERAND, 0, "tc"), NDP_IS(OPERAND, 1, "1c"), NDP_IS(RESULT, 1, "t1")},
         .out = {NDP_IS(D_OPERAND, 0, "tc", .times = NDP_TIMES_DIRECT), NDP_IS(D_SQUARES, 0, "t1")}}),
};
