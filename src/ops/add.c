/* c = a + b. */
#include "ops/cpu/rows.h"
#include "ops/shape.h"

static ndp_status shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    (void)attr;
    NDP_SHAPE_SAME("add", in[0], in[1]);
    ndp_shape_set(&out[0], in[0].rows, in[0].cols, in[0].dtype);
    return NDP_OK;
}

static ndp_status backward(ndp_bwd *b) {
    int g = b->grad_out(b, 0);
    for (int i = 0; g >= 0 && i < 2; i++)
        if (b->wants(b, i))
            NDP_TRY(b->pass_grad(b, i, g));
    return NDP_OK;
}

static void cost(const ndp_op_call *c, double *flops, double *bytes) {
    ndp_cost_stream(c, 2, 1, &c->out[0], 1, flops, bytes);
}

static void kernel_ref(const ndp_op_call *c) {
    for (int64_t t = 0; t < c->out[0].rows; t++)
        for (int64_t j = 0; j < c->out[0].cols; j++)
            ndp_view_set(&c->out[0], t, j, ndp_view_get(&c->in[0], t, j) + ndp_view_get(&c->in[1], t, j));
}

static void kernel_cpu(const ndp_op_call *c) { ndp_rows_run(c, c->out[0].rows, ndp_rows_best()->add); }

const ndp_op ndp_op_add = {
    .name = "add",
    .n_in = 2,
    .n_out = 1,
    .alias = -1,
    .shape = shape,
    .backward = backward,
    .cost = cost,
    .kernel = {kernel_cpu, kernel_ref},
};
