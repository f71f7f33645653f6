/* The norm of the gradient: square_sum adds the squares of a slice to a sum, in the order of the pieces; clip_factor
 * makes the norm of the sum of all slices, and the factor that gradients are scaled by. */
#include "ops/pieces.h"
#include "ops/shape.h"

static ndp_status sum_shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    (void)attr;
    NDP_SHAPE_CHECK(in[0].rows == 1 && (in[0].dtype == NDP_F32 || in[0].dtype == NDP_F64 || in[0].dtype == NDP_BF16),
                    "square_sum: a row of fp32, fp64 or bf16, not " NDP_SHAPE, NDP_SHAPE_ARGS(in[0]));
    NDP_TRY(ndp_pieces_check("square_sum", &in[1]));
    ndp_shape_set(&out[0], 1, 1, NDP_F64);
    return NDP_OK;
}

static void sum_cost(const ndp_op_call *c, double *flops, double *bytes) {
    ndp_cost_stream(c, 2, 1, &c->in[0], 2, flops, bytes);
}

const ndp_op ndp_op_square_sum = {
    .id = NDP_OP_square_sum,
    .name = "square_sum",
    .n_in = 2,
    .n_out = 1,
    .optional_in = 2,
    .alias = -1,
    .rows = NDP_ROWS_MIXED,
    .shape = sum_shape,
    .cost = sum_cost,
};

static ndp_status clip_shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    (void)attr;
    NDP_SHAPE_CHECK(in[0].rows == 1 && in[0].cols == 1 && in[0].dtype == NDP_F64,
                    "clip_factor: one sum of squares in fp64, not " NDP_SHAPE, NDP_SHAPE_ARGS(in[0]));
    ndp_shape_set(&out[0], 1, 1, NDP_F64);
    ndp_shape_set(&out[1], 1, 1, NDP_F64);
    return NDP_OK;
}

static void clip_cost(const ndp_op_call *c, double *flops, double *bytes) {
    ndp_cost_stream(c, 1, 2, &c->in[0], 2, flops, bytes);
}

const ndp_op ndp_op_clip_factor = {
    .id = NDP_OP_clip_factor,
    .name = "clip_factor",
    .n_in = 1,
    .n_out = 2,
    .alias = -1,
    .rows = NDP_ROWS_ALIKE,
    .shape = clip_shape,
    .cost = clip_cost,
};
