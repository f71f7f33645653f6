/* layernorm and its gradients. */
#include "ops/ref/ref_kernels.h"

#include <math.h>

static ndp_status run_layernorm(const ndp_op_call *c) {
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
    return NDP_OK;
}

const ndp_kernel ndp_ref_layernorm = {.run = run_layernorm};

static ndp_status run_layernorm_dx(const ndp_op_call *c) {
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
    return NDP_OK;
}

const ndp_kernel ndp_ref_layernorm_dx = {.run = run_layernorm_dx};

static double layernorm_dw(const ndp_op_call *c, int64_t row, int64_t j) {
    double sum = 0;
    (void)row; /* there is one */
    for (int64_t t = 0; t < c->in[0].rows; t++)
        sum += ndp_ref_in(c, 0, t, j) * (ndp_ref_in(c, 1, t, j) - ndp_ref_in(c, 2, t, 0)) * ndp_ref_in(c, 2, t, 1);
    return sum;
}

NDP_REF_EACH(layernorm_dw)
