/* y = x rstd w with rstd = (mean(x^2) + eps)^-1/2, alone or with the residual sum before it, and the gradients. Rows of
 * G times as many columns as w has are G runs, each normed by itself: heads, say. */
#include "ops/cpu/rows.h"
#include "ops/ref.h"
#include "ops/shape.h"

#include <math.h>

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

/* Of the n columns from `first` on. */
static double ref_rstd(const ndp_op_call *c, const ndp_view *x, int64_t t, int64_t first, int64_t n) {
    double sum = 0;
    for (int64_t j = first; j < first + n; j++)
        sum += ndp_view_get(x, t, j) * ndp_view_get(x, t, j);
    return 1.0 / sqrt(sum / (double)n + c->attr->eps);
}

static double ref_weight(const ndp_op_call *c, const ndp_view *w, int64_t j) {
    return ndp_view_get(w, 0, j) + c->attr->unit_offset;
}

static void ref_norm(const ndp_op_call *c, const ndp_view *x, const ndp_view *w, const ndp_view *y,
                     const ndp_view *rstd) {
    int64_t n = w->cols;
    for (int64_t t = 0; t < x->rows; t++)
        for (int64_t g = 0; g < x->cols / n; g++) {
            double r = ref_rstd(c, x, t, g * n, n);
            ndp_view_set(rstd, t, g, r);
            for (int64_t j = 0; j < n; j++)
                ndp_view_set(y, t, g * n + j, ndp_view_get(x, t, g * n + j) * r * ref_weight(c, w, j));
        }
}

static void kernel_ref(const ndp_op_call *c) { ref_norm(c, &c->in[0], &c->in[1], &c->out[0], &c->out[1]); }
static void kernel_cpu(const ndp_op_call *c) { ndp_rows_run(c, c->in[0].rows, ndp_rows_best()->rmsnorm); }

const ndp_op ndp_op_rmsnorm = {
    .name = "rmsnorm",
    .n_in = 2,
    .n_out = 2,
    .alias = -1,
    .shape = shape,
    .backward = backward,
    .cost = cost,
    .kernel = {kernel_cpu, kernel_ref},
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

/* Run g of row t. */
static void dx_ref_run(const ndp_op_call *c, int64_t t, int64_t g) {
    const ndp_view *dy = &c->in[0], *x = &c->in[1], *w = &c->in[2], *acc = &c->in[4];
    int64_t n = w->cols, first = g * n;
    double r = ndp_view_get(&c->in[3], t, g), sum = 0;
    for (int64_t j = 0; j < n; j++)
        sum += ndp_view_get(dy, t, first + j) * ref_weight(c, w, j) * ndp_view_get(x, t, first + j);
    for (int64_t j = 0; j < n; j++) {
        double d = r * ndp_view_get(dy, t, first + j) * ref_weight(c, w, j) -
                   ndp_view_get(x, t, first + j) * r * r * r * sum / (double)n;
        ndp_view_set(&c->out[0], t, first + j, ndp_present(acc) ? ndp_view_get(acc, t, first + j) + d : d);
    }
}

static void dx_ref(const ndp_op_call *c) {
    for (int64_t t = 0; t < c->in[0].rows; t++)
        for (int64_t g = 0; g < c->in[3].cols; g++)
            dx_ref_run(c, t, g);
}

static void dx_cpu(const ndp_op_call *c) { ndp_rows_run(c, c->in[0].rows, ndp_rows_best()->rmsnorm_dx); }

const ndp_op ndp_op_rmsnorm_dx = {
    .name = "rmsnorm_dx",
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
    NDP_SHAPE_SAME("rmsnorm_dw", in[0], in[1]);
    ndp_shape_set(&out[0], 1, in[0].cols / in[2].cols, ndp_wide(in[0].dtype));
    return NDP_OK;
}

static void dw_cost(const ndp_op_call *c, double *flops, double *bytes) {
    ndp_cost_stream(c, 3, 1, &c->in[0], 3, flops, bytes);
}

static void dw_ref(const ndp_op_call *c) {
    const ndp_view *dy = &c->in[0], *x = &c->in[1];
    int64_t n = c->out[0].cols;
    for (int64_t j = 0; j < n; j++) {
        double sum = 0;
        for (int64_t t = 0; t < x->rows; t++)
            for (int64_t g = 0; g < c->in[2].cols; g++)
                sum += ndp_view_get(dy, t, g * n + j) * ndp_view_get(x, t, g * n + j) * ndp_view_get(&c->in[2], t, g);
        ndp_ref_give(&c->out[0], 0, j, sum, c->attr->accumulate);
    }
}

static void dw_cpu(const ndp_op_call *c) {
    ndp_rows_run(c, ndp_column_blocks(c->out[0].cols), ndp_rows_best()->rmsnorm_dw);
}

const ndp_op ndp_op_rmsnorm_dw = {
    .name = "rmsnorm_dw",
    .n_in = 3,
    .n_out = 1,
    .alias = -1,
    .shape = dw_shape,
    .cost = dw_cost,
    .kernel = {dw_cpu, dw_ref},
};

/* s = x + h, y = norm(s) ------------------------------------------------------------------------------------------- */

static ndp_status add_shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    NDP_SHAPE_SAME("add_rmsnorm", in[0], in[1]);
    ndp_shape_set(&out[0], in[0].rows, in[0].cols, in[0].dtype);
    return shape(attr, (ndp_view[]){in[0], in[2]}, &out[1]);
}

/* Both summands have the gradient of the sum; the one that arrives at s beside y's is added inside rmsnorm_dx. */
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

static void add_ref(const ndp_op_call *c) {
    const ndp_view *s = &c->out[0];
    for (int64_t t = 0; t < s->rows; t++)
        for (int64_t j = 0; j < s->cols; j++)
            ndp_view_set(s, t, j, ndp_view_get(&c->in[0], t, j) + ndp_view_get(&c->in[1], t, j));
    ref_norm(c, s, &c->in[2], &c->out[1], &c->out[2]);
}

static void add_cpu(const ndp_op_call *c) { ndp_rows_run(c, c->in[0].rows, ndp_rows_best()->add_rmsnorm); }

const ndp_op ndp_op_add_rmsnorm = {
    .name = "add_rmsnorm",
    .n_in = 3,
    .n_out = 3,
    .alias = -1,
    .shape = add_shape,
    .backward = add_backward,
    .cost = add_cost,
    .kernel = {add_cpu, add_ref},
};
