/* y = (x - mean) rstd w + b with rstd = (var(x) + eps)^-1/2, and the gradients (arXiv:1607.06450). */
#include "ops/cpu/rows.h"
#include "ops/ref.h"
#include "ops/shape.h"

#include <math.h>

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

static void kernel_ref(const ndp_op_call *c) {
    const ndp_view *x = &c->in[0], *b = &c->in[2];
    double n = (double)x->cols;
    for (int64_t t = 0; t < x->rows; t++) {
        double mean = 0, variance = 0;
        for (int64_t j = 0; j < x->cols; j++)
            mean += ndp_view_get(x, t, j) / n;
        for (int64_t j = 0; j < x->cols; j++)
            variance += pow(ndp_view_get(x, t, j) - mean, 2) / n;
        double rstd = 1.0 / sqrt(variance + c->attr->eps);
        ndp_view_set(&c->out[1], t, 0, mean);
        ndp_view_set(&c->out[1], t, 1, rstd);
        for (int64_t j = 0; j < x->cols; j++)
            ndp_view_set(&c->out[0], t, j,
                         (ndp_view_get(x, t, j) - mean) * rstd * ndp_view_get(&c->in[1], 0, j) +
                             (ndp_present(b) ? ndp_view_get(b, 0, j) : 0));
    }
}

static void kernel_cpu(const ndp_op_call *c) { ndp_rows_run(c, c->in[0].rows, ndp_rows_best()->layernorm); }

const ndp_op ndp_op_layernorm = {
    .name = "layernorm",
    .n_in = 3,
    .n_out = 2,
    .optional_in = 1u << 2,
    .alias = -1,
    .shape = shape,
    .backward = backward,
    .cost = cost,
    .kernel = {kernel_cpu, kernel_ref},
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

static void dx_ref(const ndp_op_call *c) {
    const ndp_view *dy = &c->in[0], *x = &c->in[1], *w = &c->in[2], *acc = &c->in[4];
    double n = (double)x->cols;
    for (int64_t t = 0; t < x->rows; t++) {
        double mean = ndp_view_get(&c->in[3], t, 0), rstd = ndp_view_get(&c->in[3], t, 1), sum = 0, along = 0;
        for (int64_t j = 0; j < x->cols; j++) {
            double g = ndp_view_get(dy, t, j) * ndp_view_get(w, 0, j);
            sum += g / n;
            along += g * (ndp_view_get(x, t, j) - mean) * rstd / n;
        }
        for (int64_t j = 0; j < x->cols; j++) {
            double g = ndp_view_get(dy, t, j) * ndp_view_get(w, 0, j), z = (ndp_view_get(x, t, j) - mean) * rstd;
            double d = rstd * (g - sum - z * along);
            ndp_view_set(&c->out[0], t, j, ndp_present(acc) ? ndp_view_get(acc, t, j) + d : d);
        }
    }
}

static void dx_cpu(const ndp_op_call *c) { ndp_rows_run(c, c->in[0].rows, ndp_rows_best()->layernorm_dx); }

const ndp_op ndp_op_layernorm_dx = {
    .name = "layernorm_dx",
    .n_in = 5,
    .n_out = 1,
    .optional_in = 1u << 4,
    .alias = -1,
    .shape = dx_shape,
    .cost = dx_cost,
    .kernel = {dx_cpu, dx_ref},
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

static void dw_ref(const ndp_op_call *c) {
    const ndp_view *dy = &c->in[0], *x = &c->in[1], *stats = &c->in[2];
    for (int64_t j = 0; j < x->cols; j++) {
        double sum = 0;
        for (int64_t t = 0; t < x->rows; t++)
            sum += ndp_view_get(dy, t, j) * (ndp_view_get(x, t, j) - ndp_view_get(stats, t, 0)) *
                   ndp_view_get(stats, t, 1);
        ndp_ref_give(&c->out[0], 0, j, sum, c->attr->accumulate);
    }
}

static void dw_cpu(const ndp_op_call *c) {
    ndp_rows_run(c, ndp_column_blocks(c->out[0].cols), ndp_rows_best()->layernorm_dw);
}

const ndp_op ndp_op_layernorm_dw = {
    .name = "layernorm_dw",
    .n_in = 3,
    .n_out = 1,
    .alias = -1,
    .shape = dw_shape,
    .cost = dw_cost,
    .kernel = {dw_cpu, dw_ref},
};
