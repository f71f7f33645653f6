/* sum (+)= rows of a column, in order and in fp64: how token losses become one number. */
#include "ops/shape.h"

static ndp_status shape(ndp_op_call *c) {
    NDP_SHAPE_CHECK(c->in[0].cols == 1, "reduce_sum: a column, not " NDP_SHAPE, NDP_SHAPE_ARGS(c->in[0]));
    ndp_shape_set(&c->out[0], 1, 1, NDP_F64);
    return NDP_OK;
}

const ndp_op ndp_op_reduce_sum = {
    .id = NDP_OP_reduce_sum,
    .name = "reduce_sum",
    .n_in = 1,
    .n_out = 1,
    .rows = NDP_ROWS_SUMMED,
    .shape = shape,
    .flops = 1,
};
