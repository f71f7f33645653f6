/* The scale of a step's loss: count_valid counts the labels that have a loss; loss_scale is one over the count of all
 * ranks. */
#include "ops/shape.h"

static ndp_status count_shape(ndp_op_call *c) {
    NDP_SHAPE_CHECK(c->in[0].dtype == NDP_I32, "count_valid: labels are " NDP_SHAPE, NDP_SHAPE_ARGS(c->in[0]));
    ndp_shape_set(&c->out[0], 1, 1, NDP_I64);
    return NDP_OK;
}

const ndp_op ndp_op_count_valid = {
    NDP_NAMED(count_valid),  .n_in = 1, .n_out = 1, .rows = NDP_ROWS_SUMMED, .shape = count_shape, .flops = 1,
    .reads = NDP_READS_mask,
};

static ndp_status scale_shape(ndp_op_call *c) {
    const ndp_view *valid = &c->in[0];
    NDP_SHAPE_CHECK(valid->rows == 1 && valid->cols == 1 && valid->dtype == NDP_I64,
                    "loss_scale: one count in int64, not " NDP_SHAPE, NDP_SHAPE_ARGS(*valid));
    ndp_shape_set(&c->out[0], 1, 1, NDP_F64);
    return NDP_OK;
}

const ndp_op ndp_op_loss_scale = {
    NDP_NAMED(loss_scale), .n_in = 1, .n_out = 1, .rows = NDP_ROWS_ALIKE, .shape = scale_shape, .flops = 1,
};
