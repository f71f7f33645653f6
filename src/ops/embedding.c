/* x[t] = table[ids[t] - first], and the gradient of the table; ids of rows that the table has not (those of other
 * slices) give zeros and nothing. */
#include "ops/shape.h"

static ndp_status shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    (void)attr;
    NDP_SHAPE_CHECK(in[0].dtype == NDP_I32 && in[0].cols == 1, "embedding: ids " NDP_SHAPE, NDP_SHAPE_ARGS(in[0]));
    ndp_shape_set(&out[0], in[0].rows, in[1].cols, in[1].dtype);
    return NDP_OK;
}

static ndp_status backward(ndp_bwd *b) {
    int g = b->grad_out(b, 0);
    if (g < 0 || !b->wants(b, 1))
        return NDP_OK;
    return b->weight_grad(b, &ndp_op_embedding_dw, b->attr, (int[]){b->in[0], g}, 2, 1);
}

/* Reads only the rows that are named. */
static void cost(const ndp_op_call *c, double *flops, double *bytes) {
    *flops = 0;
    *bytes = 2 * ndp_view_bytes(&c->out[0]);
}

const ndp_op ndp_op_embedding = {
    .id = NDP_OP_embedding,
    .name = "embedding",
    .n_in = 2,
    .n_out = 1,
    .alias = -1,
    .rows = NDP_ROWS_ALIKE,
    .shape = shape,
    .backward = backward,
    .cost = cost,
};

/* The table's rows are not seen in the operands: the caller sets them, they are the parameter's. */
static ndp_status dw_shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    (void)attr;
    NDP_SHAPE_CHECK(in[0].rows == in[1].rows, "embedding_dw: ids " NDP_SHAPE " for dx " NDP_SHAPE,
                    NDP_SHAPE_ARGS(in[0]), NDP_SHAPE_ARGS(in[1]));
    ndp_shape_set(&out[0], out[0].rows, in[1].cols, ndp_wide(in[1].dtype));
    return NDP_OK;
}

static void dw_cost(const ndp_op_call *c, double *flops, double *bytes) {
    *flops = (double)c->in[1].rows * (double)c->in[1].cols;
    *bytes = 3 * ndp_view_bytes(&c->in[1]) + (c->attr->accumulate ? 0 : ndp_view_bytes(&c->out[0]));
}

const ndp_op ndp_op_embedding_dw = {
    .id = NDP_OP_embedding_dw,
    .name = "embedding_dw",
    .n_in = 2,
    .n_out = 1,
    .alias = -1,
    .rows = NDP_ROWS_SUMMED,
    .shape = dw_shape,
    .cost = dw_cost,
};
