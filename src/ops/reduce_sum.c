/* sum (+)= rows of a column, in order and in fp64: how token losses become one number. */
#include "ops/shape.h"

static ndp_status shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    (void)attr;
    NDP_SHAPE_CHECK(in[0].cols == 1, "reduce_sum: a column, not " NDP_SHAPE, NDP_SHAPE_ARGS(in[0]));
    ndp_shape_set(&out[0], 1, 1, NDP_F64);
    return NDP_OK;
}

static void cost(const ndp_op_call *c, double *flops, double *bytes) {
    ndp_cost_stream(c, 1, 1, &c->in[0], 1, flops, bytes);
}

/* A few thousand numbers: one thread, the same on every backend. */
static void kernel(const ndp_op_call *c) {
    double *sum = c->out[0].data, total = c->attr->accumulate ? *sum : 0.0;
    for (int64_t t = 0; t < c->in[0].rows; t++)
        total += ndp_view_get(&c->in[0], t, 0);
    *sum = total;
}

const ndp_op ndp_op_reduce_sum = {
    .name = "reduce_sum",
    .n_in = 1,
    .n_out = 1,
    .alias = -1,
    .shape = shape,
    .cost = cost,
    .kernel = {kernel, kernel},
};
