/* mean_squares, norm_by and their gradients. */
#include "ops/ref/ref_kernels.h"

#include <math.h>

static double mean_squares(const ndp_op_call *c, int64_t t, int64_t column) {
    double sum = 0;
    (void)column; /* there is one */
    for (int64_t j = 0; j < c->in[0].cols; j++)
        sum += pow(ndp_ref_in(c, 0, t, j), 2);
    return sum * c->attr->scale;
}

NDP_REF_EACH(mean_squares)

static double mean_squares_dx(const ndp_op_call *c, int64_t t, int64_t j) {
    double d = 2 * c->attr->scale * ndp_ref_in(c, 0, t, 0) * ndp_ref_in(c, 1, t, j);
    return ndp_present(&c->in[2]) ? ndp_ref_in(c, 2, t, j) + d : d;
}

NDP_REF_EACH(mean_squares_dx)

static ndp_status run_norm_by(const ndp_op_call *c) {
    for (int64_t t = 0; t < c->in[0].rows; t++) {
        double r = 1 / sqrt(ndp_view_get(&c->in[2], t, 0) + c->attr->eps);
        ndp_view_set(&c->out[1], t, 0, r);
        for (int64_t j = 0; j < c->in[0].cols; j++)
            ndp_view_set(&c->out[0], t, j, ndp_view_get(&c->in[0], t, j) * r * ndp_ref_norm_weight(c, &c->in[1], j));
    }
    return NDP_OK;
}

const ndp_kernel ndp_ref_norm_by = {.run = run_norm_by};

static ndp_status run_norm_by_dx(const ndp_op_call *c) {
    const ndp_view *dy = &c->in[0], *x = &c->in[1];
    for (int64_t t = 0; t < x->rows; t++) {
        double r = ndp_view_get(&c->in[3], t, 0), sum = 0;
        for (int64_t j = 0; j < x->cols; j++) {
            double g = ndp_view_get(dy, t, j) * ndp_ref_norm_weight(c, &c->in[2], j);
            sum += g * ndp_view_get(x, t, j);
            if (ndp_present(&c->out[0]))
                ndp_view_set(&c->out[0], t, j, g * r);
        }
        if (ndp_present(&c->out[1]))
            ndp_view_set(&c->out[1], t, 0, -0.5 * r * r * r * sum);
    }
    return NDP_OK;
}

const ndp_kernel ndp_ref_norm_by_dx = {.run = run_norm_by_dx};
