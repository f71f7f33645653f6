/* y = x, and an earlier gradient, in another storage type, or in another place. */
#include "ops/shape.h"

static bool is_real(ndp_dtype t) { return t == NDP_F32 || t == NDP_BF16 || t == NDP_F64; }

static ndp_status shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    NDP_SHAPE_CHECK(attr->type == in[0].dtype || (is_real(attr->type) && is_real(in[0].dtype)),
                    "copy: " NDP_SHAPE " to %s", NDP_SHAPE_ARGS(in[0]), ndp_dtype_name(attr->type));
    ndp_shape_set(&out[0], in[0].rows, in[0].cols, attr->type);
    if (in[1].rows)
        NDP_SHAPE_SAME("copy", in[1], out[0]);
    return NDP_OK;
}

/* The gradient keeps its type. */
static ndp_status backward(ndp_bwd *b) {
    int g = b->grad_out(b, 0);
    return g >= 0 && b->wants(b, 0) ? b->pass_grad(b, 0, g) : NDP_OK;
}

static void cost(const ndp_op_call *c, double *flops, double *bytes) {
    ndp_cost_stream(c, 1, 1, &c->out[0], 0, flops, bytes);
}

const ndp_op ndp_op_copy = {
    .id = NDP_OP_copy,
    .name = "copy",
    .n_in = 2,
    .n_out = 1,
    .optional_in = 1u << 1,
    .alias = -1,
    .rows = NDP_ROWS_ALIKE,
    .shape = shape,
    .backward = backward,
    .cost = cost,
};
