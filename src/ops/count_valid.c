/* The scale of a step's loss: count_valid counts the labels that have a loss; loss_scale is one over the count of all
 * ranks. */
#include "ops/shape.h"

static ndp_status count_shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    (void)attr;
    NDP_SHAPE_CHECK(in[0].dtype == NDP_I32, "count_valid: labels are " NDP_SHAPE, NDP_SHAPE_ARGS(in[0]));
    ndp_shape_set(&out[0], 1, 1, NDP_I64);
    return NDP_OK;
}

static void count_cost(const ndp_op_call *c, double *flops, double *bytes) {
    ndp_cost_stream(c, 1, 1, &c->in[0], 1, flops, bytes);
}

const ndp_op ndp_op_count_valid = {
    .id = NDP_OP_count_valid,
    .name = "count_valid",
    .n_in = 1,
    .n_out = 1,
    .alias = -1,
    .rows = NDP_ROWS_SUMMED,
    .shape = count_shape,
    .cost = count_cost,
};

static ndp_status scale_shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    (void)attr;
    NDP_SHAPE_CHECK(in[0].rows == 1 && in[0].cols == 1 && in[0].dtype == NDP_I64,
                    "loss_scale: one count in int64, not " NDP_SHAPE, NDP_SHAPE_ARGS(in[0]));
    ndp_shape_set(&out[0], 1, 1, NDP_F64);
    return NDP_OK;
}

static void scale_cost(const ndp_op_call *c, double *flops, double *bytes) {
    ndp_cost_stream(c, 1, 1, &c->in[0], 1, flops, bytes);
}

const ndp_op ndp_op_loss_scale = {
    .id = NDP_OP_loss_scale,
    .name = "loss_scale",
    .n_in = 1,
    .n_out = 1,
    .alias = -1,
    .rows = NDP_ROWS_ALIKE,
    .shape = scale_shape,
    .cost = scale_cost,
};
