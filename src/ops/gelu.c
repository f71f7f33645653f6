/* GELU (arXiv:1606.08415) in its tanh form, alone or as the gate of a product: gelu(x) = x / 2 (1 + tanh u),
 * u = sqrt(2 / pi) (x + 0.044715 x^3). */
#include "ops/cpu/rows.h"
#include "ops/ref.h"
#include "ops/shape.h"

#include <math.h>

/* *slope: the derivative. */
static double ref_gelu(double x, double *slope) {
    double by = sqrt(2 / M_PI), t = tanh(by * (x + 0.044715 * x * x * x));
    *slope = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * by * (1 + 3 * 0.044715 * x * x);
    return 0.5 * x * (1 + t);
}

static ndp_status backward_by(ndp_bwd *b, const ndp_op *op) {
    int g = b->grad_out(b, 0), made;
    if (g < 0 || !b->wants(b, 0))
        return NDP_OK;
    return b->input_grad(b, op, b->attr, (int[]){g, b->in[0]}, 2, (int[]){0}, 1, -1, &made);
}

/* An exponential and a division count as about ten operations. */
static void cost(const ndp_op_call *c, double *flops, double *bytes) {
    ndp_cost_stream(c, 1, 1, &c->out[0], 27, flops, bytes);
}

static void bwd_cost(const ndp_op_call *c, double *flops, double *bytes) {
    ndp_cost_stream(c, 2, 1, &c->in[0], 36, flops, bytes);
}

/* alone ---------------------------------------------------------------------------------------------------------- */

static ndp_status shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    (void)attr;
    ndp_shape_set(&out[0], in[0].rows, in[0].cols, in[0].dtype);
    return NDP_OK;
}

static ndp_status backward(ndp_bwd *b) { return backward_by(b, &ndp_op_gelu_bwd); }

static void kernel_ref(const ndp_op_call *c) {
    double slope;
    for (int64_t t = 0; t < c->out[0].rows; t++)
        for (int64_t j = 0; j < c->out[0].cols; j++)
            ndp_view_set(&c->out[0], t, j, ref_gelu(ndp_view_get(&c->in[0], t, j), &slope));
}

static void kernel_cpu(const ndp_op_call *c) { ndp_rows_run(c, c->in[0].rows, ndp_rows_best()->gelu); }

const ndp_op ndp_op_gelu = {
    .name = "gelu",
    .n_in = 1,
    .n_out = 1,
    .alias = -1,
    .shape = shape,
    .backward = backward,
    .cost = cost,
    .kernel = {kernel_cpu, kernel_ref},
};

static ndp_status bwd_shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    (void)attr;
    NDP_SHAPE_SAME("gelu_bwd", in[0], in[1]);
    ndp_shape_set(&out[0], in[1].rows, in[1].cols, in[1].dtype);
    return NDP_OK;
}

static void bwd_ref(const ndp_op_call *c) {
    for (int64_t t = 0; t < c->out[0].rows; t++)
        for (int64_t j = 0; j < c->out[0].cols; j++) {
            double slope;
            ref_gelu(ndp_view_get(&c->in[1], t, j), &slope);
            ndp_view_set(&c->out[0], t, j, ndp_view_get(&c->in[0], t, j) * slope);
        }
}

static void bwd_cpu(const ndp_op_call *c) { ndp_rows_run(c, c->in[0].rows, ndp_rows_best()->gelu_bwd); }

const ndp_op ndp_op_gelu_bwd = {
    .name = "gelu_bwd",
    .n_in = 2,
    .n_out = 1,
    .alias = -1,
    .shape = bwd_shape,
    .cost = bwd_cost,
    .kernel = {bwd_cpu, bwd_ref},
};

/* as a gate ------------------------------------------------------------------------------------------------------ */

static ndp_status gate_shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    (void)attr;
    NDP_SHAPE_CHECK(in[0].cols % 2 == 0, "geglu: gate and up in " NDP_SHAPE, NDP_SHAPE_ARGS(in[0]));
    ndp_shape_set(&out[0], in[0].rows, in[0].cols / 2, in[0].dtype);
    return NDP_OK;
}

static ndp_status gate_backward(ndp_bwd *b) { return backward_by(b, &ndp_op_geglu_bwd); }

static void gate_ref(const ndp_op_call *c) {
    const ndp_view *gu = &c->in[0], *a = &c->out[0];
    double slope;
    for (int64_t t = 0; t < a->rows; t++)
        for (int64_t j = 0; j < a->cols; j++)
            ndp_view_set(a, t, j, ref_gelu(ndp_view_get(gu, t, j), &slope) * ndp_view_get(gu, t, a->cols + j));
}

static void gate_cpu(const ndp_op_call *c) { ndp_rows_run(c, c->in[0].rows, ndp_rows_best()->geglu); }

const ndp_op ndp_op_geglu = {
    .name = "geglu",
    .n_in = 1,
    .n_out = 1,
    .alias = -1,
    .shape = gate_shape,
    .backward = gate_backward,
    .cost = cost,
    .kernel = {gate_cpu, gate_ref},
};

static ndp_status gate_bwd_shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    (void)attr;
    NDP_SHAPE_CHECK(in[0].rows == in[1].rows && 2 * in[0].cols == in[1].cols && in[0].dtype == in[1].dtype,
                    "geglu_bwd: da " NDP_SHAPE ", gu " NDP_SHAPE, NDP_SHAPE_ARGS(in[0]), NDP_SHAPE_ARGS(in[1]));
    ndp_shape_set(&out[0], in[1].rows, in[1].cols, in[1].dtype);
    return NDP_OK;
}

static void gate_bwd_ref(const ndp_op_call *c) {
    const ndp_view *da = &c->in[0], *gu = &c->in[1], *dgu = &c->out[0];
    for (int64_t t = 0; t < da->rows; t++)
        for (int64_t j = 0; j < da->cols; j++) {
            double slope, g = ref_gelu(ndp_view_get(gu, t, j), &slope), d = ndp_view_get(da, t, j);
            ndp_view_set(dgu, t, j, d * ndp_view_get(gu, t, da->cols + j) * slope);
            ndp_view_set(dgu, t, da->cols + j, d * g);
        }
}

static void gate_bwd_cpu(const ndp_op_call *c) { ndp_rows_run(c, c->in[0].rows, ndp_rows_best()->geglu_bwd); }

const ndp_op ndp_op_geglu_bwd = {
    .name = "geglu_bwd",
    .n_in = 2,
    .n_out = 1,
    .alias = -1,
    .shape = gate_bwd_shape,
    .cost = bwd_cost,
    .kernel = {gate_bwd_cpu, gate_bwd_ref},
};
