/* sum (+)= rows of each column, each times its weight, in order and in fp64: how token losses become one number. */
#include "ops/flow.h"
#include "ops/shape.h"

static ndp_status shape(ndp_op_call *c) {
    const ndp_view *x = &c->in[0], *weights = &c->in[1];
    NDP_SHAPE_CHECK(x->cols == 1 || x->dtype == NDP_F64, "reduce_sum: a column, or several in fp64, not " NDP_SHAPE,
                    NDP_SHAPE_ARGS(*x));
    NDP_SHAPE_CHECK(weights->rows == 0 || (weights->rows == x->rows && weights->cols == 1 && weights->dtype == NDP_F64),
                    "reduce_sum: weights " NDP_SHAPE " of rows " NDP_SHAPE, NDP_SHAPE_ARGS(*weights),
                    NDP_SHAPE_ARGS(*x));
    ndp_shape_set(&c->out[0], 1, x->cols, NDP_F64);
    return NDP_OK;
}

const ndp_op ndp_op_reduce_sum = {
    NDP_NAMED(reduce_sum),
    .n_in = 2,
    .optional_in = 2,
    .n_out = 1,
    .rows = NDP_ROWS_SUMMED,
    .shape = shape,
    .flops = 1,
    NDP_FLOWS({.in = {NDP_IS(OPERAND, 0, "tn"), NDP_IS(OPERAND, 1, "t1")}, .out = {NDP_IS(COUNT, 0, "1n")}},
              {.node = &ndp_op_router_losses, .in = {NDP_IS(LOSSES, 0, "tn")}, .out = {NDP_IS(COUNT, 0, "1n")}}),
};
