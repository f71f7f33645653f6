/* The norm of the gradient: square_sum adds the squares of a slice to a sum, in the order of the pieces; clip_factor
 * makes the norm of the sum of all slices, and the factor that gradients are scaled by: NaN where the step is not
 * finite, so that no update applies it (ops/update.h). */
#include "ops/pieces.h"
#include "ops/shape.h"

static ndp_status sum_shape(ndp_op_call *c) {
    const ndp_view *grad = &c->in[0];
    NDP_SHAPE_CHECK(grad->rows == 1 && (grad->dtype == NDP_F32 || grad->dtype == NDP_F64 || grad->dtype == NDP_BF16),
                    "square_sum: a row of fp32, fp64 or bf16, not " NDP_SHAPE, NDP_SHAPE_ARGS(*grad));
    NDP_TRY(ndp_pieces_check("square_sum", &c->in[1]));
    ndp_shape_set(&c->out[0], 1, 1, NDP_F64);
    return NDP_OK;
}

const ndp_op ndp_op_square_sum = {
    NDP_NAMED(square_sum),  .n_in = 2,          .n_out = 1, .optional_in = 2,
    .rows = NDP_ROWS_MIXED, .shape = sum_shape, .flops = 2,
};

static ndp_status clip_shape(ndp_op_call *c) {
    const ndp_view *squares = &c->in[0], *loss = &c->in[1];
    NDP_SHAPE_CHECK(squares->rows == 1 && squares->cols == 1 && squares->dtype == NDP_F64,
                    "clip_factor: one sum of squares in fp64, not " NDP_SHAPE, NDP_SHAPE_ARGS(*squares));
    NDP_SHAPE_CHECK(loss->rows == 0 || (loss->rows == 1 && loss->cols == 1 && loss->dtype == NDP_F64),
                    "clip_factor: one loss in fp64, not " NDP_SHAPE, NDP_SHAPE_ARGS(*loss));
    ndp_shape_set(&c->out[0], 1, 1, NDP_F64);
    ndp_shape_set(&c->out[1], 1, 1, NDP_F64);
    return NDP_OK;
}

const ndp_op ndp_op_clip_factor = {
    NDP_NAMED(clip_factor), .n_in = 2,           .n_out = 2, .optional_in = 2,
    .rows = NDP_ROWS_ALIKE, .shape = clip_shape, .flops = 2, .reads = NDP_READS_max_norm | NDP_READS_scale,
};
