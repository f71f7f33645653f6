/* gelu, geglu and their gradients. */
#include "ops/ref/ref_kernels.h"

#include <math.h>

/* *slope: the derivative. */
static double ref_gelu(double x, double *slope) {
    double by = sqrt(2 / M_PI), t = tanh(by * (x + 0.044715 * x * x * x));
    *slope = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * by * (1 + 3 * 0.044715 * x * x);
    return 0.5 * x * (1 + t);
}

static ndp_status run_gelu(const ndp_op_call *c) {
    double slope;
    for (int64_t t = 0; t < c->out[0].rows; t++)
        for (int64_t j = 0; j < c->out[0].cols; j++)
            ndp_view_set(&c->out[0], t, j, ref_gelu(ndp_view_get(&c->in[0], t, j), &slope));
    return NDP_OK;
}

const ndp_kernel ndp_ref_gelu = {.run = run_gelu};

static ndp_status run_gelu_bwd(const ndp_op_call *c) {
    for (int64_t t = 0; t < c->out[0].rows; t++)
        for (int64_t j = 0; j < c->out[0].cols; j++) {
            double slope;
            ref_gelu(ndp_view_get(&c->in[1], t, j), &slope);
            ndp_view_set(&c->out[0], t, j, ndp_view_get(&c->in[0], t, j) * slope);
        }
    return NDP_OK;
}

const ndp_kernel ndp_ref_gelu_bwd = {.run = run_gelu_bwd};

static ndp_status run_geglu(const ndp_op_call *c) {
    const ndp_view *gu = &c->in[0], *a = &c->out[0];
    double slope;
    for (int64_t t = 0; t < a->rows; t++)
        for (int64_t j = 0; j < a->cols; j++)
            ndp_view_set(a, t, j, ref_gelu(ndp_view_get(gu, t, j), &slope) * ndp_view_get(gu, t, a->cols + j));
    return NDP_OK;
}

const ndp_kernel ndp_ref_geglu = {.run = run_geglu};

static ndp_status run_geglu_bwd(const ndp_op_call *c) {
    const ndp_view *da = &c->in[0], *gu = &c->in[1], *dgu = &c->out[0];
    for (int64_t t = 0; t < da->rows; t++)
        for (int64_t j = 0; j < da->cols; j++) {
            double slope, g = ref_gelu(ndp_view_get(gu, t, j), &slope), d = ndp_view_get(da, t, j);
            ndp_view_set(dgu, t, j, d * ndp_view_get(gu, t, da->cols + j) * slope);
            ndp_view_set(dgu, t, da->cols + j, d * g);
        }
    return NDP_OK;
}

const ndp_kernel ndp_ref_geglu_bwd = {.run = run_geglu_bwd};
