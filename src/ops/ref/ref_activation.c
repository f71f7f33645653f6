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

static double ref_gelu_erf(double x, double *slope) {
    double below = 0.5 * erfc(-x / sqrt(2)); /* the part of a normal distribution */
    *slope = below + x * exp(-x * x / 2) / sqrt(2 * M_PI);
    return x * below;
}

static double gelu_erf(const ndp_op_call *c, int64_t t, int64_t j) {
    double slope;
    return ref_gelu_erf(ndp_ref_in(c, 0, t, j), &slope);
}

NDP_REF_EACH(gelu_erf)

static double gelu_erf_bwd(const ndp_op_call *c, int64_t t, int64_t j) {
    double slope;
    ref_gelu_erf(ndp_ref_in(c, 1, t, j), &slope);
    return ndp_ref_in(c, 0, t, j) * slope;
}

NDP_REF_EACH(gelu_erf_bwd)

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

/* Of gate and up of column i, clipped; *g, *u: 0 for what is cut off, else 1. */
static double ref_clipped(const ndp_op_call *c, int operand, int64_t t, int64_t i, double *up, double *g, double *u) {
    double gate = ndp_ref_in(c, operand, t, 2 * i), cap = c->attr->cap;
    *up = ndp_ref_in(c, operand, t, 2 * i + 1);
    *g = gate <= cap, *u = fabs(*up) <= cap;
    *up = fmin(fmax(*up, -cap), cap);
    return fmin(gate, cap);
}

static double swiglu_clipped(const ndp_op_call *c, int64_t t, int64_t j) {
    double up, in[2], g = ref_clipped(c, 0, t, j, &up, &in[0], &in[1]);
    return (up + 1) * g / (1 + exp(-c->attr->scale * g));
}

NDP_REF_EACH(swiglu_clipped)

static double swiglu_clipped_bwd(const ndp_op_call *c, int64_t t, int64_t j) {
    double up, in[2], g = ref_clipped(c, 1, t, j / 2, &up, &in[0], &in[1]), by = c->attr->scale;
    double d = ndp_ref_in(c, 0, t, j / 2), s = 1 / (1 + exp(-by * g));
    return j % 2 ? in[1] * d * g * s : in[0] * d * (up + 1) * s * (1 + by * g * (1 - s));
}

NDP_REF_EACH(swiglu_clipped_bwd)
