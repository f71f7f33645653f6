/* gelu and the gates, and their gradients. */
#include "ops/ref/ref_kernels.h"

#include <math.h>

/* *slope: the derivative. */
static double ref_gelu(double x, double *slope) {
    double by = sqrt(2 / M_PI), t = tanh(by * (x + 0.044715 * x * x * x));
    *slope = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * by * (1 + 3 * 0.044715 * x * x);
    return 0.5 * x * (1 + t);
}

static double gelu(const ndp_op_call *c, int64_t t, int64_t j) {
    double slope;
    return ref_gelu(ndp_ref_in(c, 0, t, j), &slope);
}

NDP_REF_EACH(gelu)

static double gelu_bwd(const ndp_op_call *c, int64_t t, int64_t j) {
    double slope;
    ref_gelu(ndp_ref_in(c, 1, t, j), &slope);
    return ndp_ref_in(c, 0, t, j) * slope;
}

NDP_REF_EACH(gelu_bwd)

static double geglu(const ndp_op_call *c, int64_t t, int64_t j) {
    double slope;
    return ref_gelu(ndp_ref_in(c, 0, t, j), &slope) * ndp_ref_in(c, 0, t, c->out[0].cols + j);
}

NDP_REF_EACH(geglu)

/* Of the gate in the first n columns, of up in the others. */
static double geglu_bwd(const ndp_op_call *c, int64_t t, int64_t j) {
    int64_t n = c->in[0].cols, i = j % n;
    double slope, g = ref_gelu(ndp_ref_in(c, 1, t, i), &slope), d = ndp_ref_in(c, 0, t, i);
    return j < n ? d * ndp_ref_in(c, 1, t, n + i) * slope : d * g;
}

NDP_REF_EACH(geglu_bwd)

static double swiglu(const ndp_op_call *c, int64_t t, int64_t j) {
    double g = ndp_ref_in(c, 0, t, j);
    return g / (1.0 + exp(-g)) * ndp_ref_in(c, 0, t, c->out[0].cols + j);
}

NDP_REF_EACH(swiglu)

static double swiglu_bwd(const ndp_op_call *c, int64_t t, int64_t j) {
    int64_t n = c->in[0].cols, i = j % n;
    double g = ndp_ref_in(c, 1, t, i), d = ndp_ref_in(c, 0, t, i), s = 1.0 / (1.0 + exp(-g));
    return j < n ? d * ndp_ref_in(c, 1, t, n + i) * s * (1.0 + g * (1.0 - s)) : d * g * s;
}

NDP_REF_EACH(swiglu_bwd)
