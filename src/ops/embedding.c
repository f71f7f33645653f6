/* x[t] = table[ids[t] - first], and the gradient of the table; ids of rows that the table has not (those of other
 * slices) give zeros and nothing. */
#include "ops/flow.h"
#include "ops/shape.h"

static ndp_status shape(ndp_op_call *c) {
    const ndp_view *ids = &c->in[0], *table = &c->in[1];
    NDP_SHAPE_CHECK(ids->dtype == NDP_I32 && ids->cols == 1, "embedding: ids " NDP_SHAPE, NDP_SHAPE_ARGS(*ids));
    ndp_shape_set(&c->out[0], ids->rows, table->cols, table->dtype);
    return NDP_OK;
}

static ndp_status backward(ndp_bwd *b) {
    return ndp_weight_grad(b, 1, &ndp_op_embedding_dw, (int[]){b->in[0], b->grad_out(b, 0)}, 2);
}

/* Reads only the rows that are named. */
static void cost(const ndp_op_call *c, double *flops, double *bytes) {
    (void)flops;
    *bytes = 2 * ndp_view_bytes(&c->out[0]);
}

const ndp_op ndp_op_embedding = {
    NDP_NAMED(embedding),
    .n_in = 2,
    .n_out = 1,
    .rows = NDP_ROWS_ALIKE,
    .shape = shape,
    .backward = backward,
    .cost = cost,
    .reads = NDP_READS_first,
    NDP_FLOWS({.in = {NDP_IS(OPERAND, 0, "t1"), NDP_IS(OPERAND, 1, "vc")}, .out = {NDP_IS(RESULT, 0, "tc")}}),
};

/* The table's rows are not seen in the operands: the caller sets them, they are the parameter's. */
static ndp_status dw_shape(ndp_op_call *c) {
    const ndp_view *ids = &c->in[0], *dx = &c->in[1];
    NDP_SHAPE_CHECK(ids->rows == dx->rows, "embedding_dw: ids " NDP_SHAPE " for dx " NDP_SHAPE, NDP_SHAPE_ARGS(*ids),
                    NDP_SHAPE_ARGS(*dx));
    ndp_shape_set(&c->out[0], c->out[0].rows, dx->cols, ndp_wide(dx->dtype));
    return NDP_OK;
}

static void dw_cost(const ndp_op_call *c, double *flops, double *bytes) {
    *flops = ndp_elements(&c->in[1]);
    *bytes = 3 * ndp_view_bytes(&c->in[1]) + (c->attr->accumulate ? 0 : ndp_view_bytes(&c->out[0]));
}

const ndp_op ndp_op_embedding_dw = {
    NDP_NAMED(embedding_dw),
    .n_in = 2,
    .n_out = 1,
    .rows = NDP_ROWS_SUMMED,
    .shape = dw_shape,
    .cost = dw_cost,
    .reads = NDP_READS_first,
    NDP_FLOWS({.node = &ndp_op_embedding,
               .in = {NDP_IS(OPERAND, 0, "t1"), NDP_IS(D_RESULT, 0, "tc")},
               .out = {NDP_IS(D_OPERAND, 1, "vc")}}),
};
