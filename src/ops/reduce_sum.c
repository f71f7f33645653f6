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

const ndp_op ndp_op_reduce_sum = {
    .id = NDP_OP_reduce_sum,
    .name = "reduce_sum",
    .n_in = 1,
    .n_out = 1,
    .alias = -1,
    .rows = NDP_ROWS_SUMMED,
    .shape = shape,
    .cost = cost,
};
