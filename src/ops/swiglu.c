/* a = silu(gate) up over the two halves of gu, silu(g) = g / (1 + e^-g). */
#include "ops/cpu/rows.h"
#include "ops/ref.h"
#include "ops/shape.h"

#include <math.h>

static ndp_status shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    (void)attr;
    NDP_SHAPE_CHECK(in[0].cols % 2 == 0, "swiglu: gate and up in " NDP_SHAPE, NDP_SHAPE_ARGS(in[0]));
    ndp_shape_set(&out[0], in[0].rows, in[0].cols / 2, in[0].dtype);
    return NDP_OK;
}

static ndp_status backward(ndp_bwd *b) {
    int g = b->grad_out(b, 0), made;
    if (g < 0 || !b->wants(b, 0))
        return NDP_OK;
    return b->input_grad(b, &ndp_op_swiglu_bwd, b->attr, (int[]){g, b->in[0]}, 2, (int[]){0}, 1, -1, &made);
}

/* An exponential and a division count as about ten operations. */
static void cost(const ndp_op_call *c, double *flops, double *bytes) {
    ndp_cost_stream(c, 1, 1, &c->out[0], 22, flops, bytes);
}

static void kernel_ref(const ndp_op_call *c) {
    const ndp_view *gu = &c->in[0], *a = &c->out[0];
    for (int64_t t = 0; t < a->rows; t++)
        for (int64_t j = 0; j < a->cols; j++) {
            double g = ndp_view_get(gu, t, j);
            ndp_view_set(a, t, j, g / (1.0 + exp(-g)) * ndp_view_get(gu, t, a->cols + j));
        }
}

static void kernel_cpu(const ndp_op_call *c) { ndp_rows_run(c, c->in[0].rows, ndp_rows_best()->swiglu); }

const ndp_op ndp_op_swiglu = {
    .name = "swiglu",
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
    NDP_SHAPE_CHECK(in[0].rows == in[1].rows && 2 * in[0].cols == in[1].cols && in[0].dtype == in[1].dtype,
                    "swiglu_bwd: da " NDP_SHAPE ", gu " NDP_SHAPE, NDP_SHAPE_ARGS(in[0]), NDP_SHAPE_ARGS(in[1]));
    ndp_shape_set(&out[0], in[1].rows, in[1].cols, in[1].dtype);
    return NDP_OK;
}

static void bwd_cost(const ndp_op_call *c, double *flops, double *bytes) {
    ndp_cost_stream(c, 2, 1, &c->in[0], 28, flops, bytes);
}

static void bwd_ref(const ndp_op_call *c) {
    const ndp_view *da = &c->in[0], *gu = &c->in[1], *dgu = &c->out[0];
    for (int64_t t = 0; t < da->rows; t++)
        for (int64_t j = 0; j < da->cols; j++) {
            double g = ndp_view_get(gu, t, j), u = ndp_view_get(gu, t, da->cols + j), d = ndp_view_get(da, t, j);
            double s = 1.0 / (1.0 + exp(-g));
            ndp_view_set(dgu, t, j, d * u * s * (1.0 + g * (1.0 - s)));
            ndp_view_set(dgu, t, da->cols + j, d * g * s);
        }
}

static void bwd_cpu(const ndp_op_call *c) { ndp_rows_run(c, c->in[0].rows, ndp_rows_best()->swiglu_bwd); }

const ndp_op ndp_op_swiglu_bwd = {
    .name = "swiglu_bwd",
    .n_in = 2,
    .n_out = 1,
    .alias = -1,
    .shape = bwd_shape,
    .cost = bwd_cost,
    .kernel = {bwd_cpu, bwd_ref},
};
