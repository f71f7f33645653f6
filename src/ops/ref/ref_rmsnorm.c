/* rmsnorm, add_rmsnorm and the gradients. */
#include "ops/ref/ref_kernels.h"

#include <math.h>

/* Of the n columns from `first` on. */
static double ref_rstd(const ndp_op_call *c, const ndp_view *x, int64_t t, int64_t first, int64_t n) {
    double sum = 0;
    for (int64_t j = first; j < first + n; j++)
        sum += ndp_view_get(x, t, j) * ndp_view_get(x, t, j);
    return 1.0 / sqrt(sum / (double)n + c->attr->eps);
}

static void ref_norm(const ndp_op_call *c, const ndp_view *x, const ndp_view *w, const ndp_view *y,
                     const ndp_view *rstd) {
    int64_t n = w->cols;
    for (int64_t t = 0; t < x->rows; t++)
        for (int64_t g = 0; g < x->cols / n; g++) {
            double r = ref_rstd(c, x, t, g * n, n);
            ndp_view_set(rstd, t, g, r);
            for (int64_t j = 0; j < n; j++)
                ndp_view_set(y, t, g * n + j, ndp_view_get(x, t, g * n + j) * r * ndp_ref_norm_weight(c, w, j));
        }
}

/* Run g of row t. */
static void dx_ref_run(const ndp_op_call *c, int64_t t, int64_t g) {
    const ndp_view *dy = &c->in[0], *x = &c->in[1], *w = &c->in[2], *acc = &c->in[4];
    int64_t n = w->cols, first = g * n;
    double r = ndp_view_get(&c->in[3], t, g), sum = 0;
    for (int64_t j = 0; j < n; j++)
        sum += ndp_view_get(dy, t, first + j) * ndp_ref_norm_weight(c, w, j) * ndp_view_get(x, t, first + j);
    for (int64_t j = 0; j < n; j++) {
        double d = r * ndp_view_get(dy, t, first + j) * ndp_ref_norm_weight(c, w, j) -
                   ndp_view_get(x, t, first + j) * r * r * r * sum / (double)n;
        ndp_view_set(&c->out[0], t, first + j, ndp_present(acc) ? ndp_view_get(acc, t, first + j) + d : d);
    }
}

static ndp_status run_rmsnorm(const ndp_op_call *c) {
    ref_norm(c, &c->in[0], &c->in[1], &c->out[0], &c->out[1]);
    return NDP_OK;
}

const ndp_kernel ndp_ref_rmsnorm = {.run = run_rmsnorm};

static ndp_status run_rmsnorm_dx(const ndp_op_call *c) {
    for (int64_t t = 0; t < c->in[0].rows; t++)
        for (int64_t g = 0; g < c->in[3].cols; g++)
            dx_ref_run(c, t, g);
    return NDP_OK;
}

const ndp_kernel ndp_ref_rmsnorm_dx = {.run = run_rmsnorm_dx};

static double rmsnorm_dw(const ndp_op_call *c, int64_t row, int64_t j) {
    double sum = 0;
    (void)row; /* there is one */
    for (int64_t t = 0; t < c->in[0].rows; t++)
        for (int64_t g = 0; g < c->in[2].cols; g++) {
            int64_t at = g * c->out[0].cols + j;
            sum += ndp_ref_in(c, 0, t, at) * ndp_ref_in(c, 1, t, at) * ndp_ref_in(c, 2, t, g);
        }
    return sum;
}

NDP_REF_EACH(rmsnorm_dw)

static ndp_status run_add_rmsnorm(const ndp_op_call *c) {
    const ndp_view *s = &c->out[0];
    for (int64_t t = 0; t < s->rows; t++)
        for (int64_t j = 0; j < s->cols; j++)
            ndp_view_set(s, t, j, ndp_view_get(&c->in[0], t, j) + ndp_view_get(&c->in[1], t, j));
    ref_norm(c, s, &c->in[2], &c->out[1], &c->out[2]);
    return NDP_OK;
}

const ndp_kernel ndp_ref_add_rmsnorm = {.run = run_add_rmsnorm};
