/* Rotary positions on the columns of the query and key heads, the first of x, in place; its backward is the rotation
 * back. (A table whose cosines and sines have another amplitude than 1 scales, too: then the backward is the
 * transpose.)
 */
#include "ops/shape.h"

static int64_t turned_heads(const ndp_op_attr *a) { return (int64_t)a->heads + a->kv_heads; }

static int rotary_dim(const ndp_op_attr *a) { return a->rotary_dim ? a->rotary_dim : a->head_dim; }

static ndp_status shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    int dim = rotary_dim(attr);
    NDP_SHAPE_CHECK(dim % 2 == 0 && dim <= attr->head_dim && in[0].cols >= turned_heads(attr) * attr->head_dim,
                    "rope: %d + %d heads of %d columns in x " NDP_SHAPE, attr->heads, attr->kv_heads, attr->head_dim,
                    NDP_SHAPE_ARGS(in[0]));
    NDP_SHAPE_CHECK(in[1].dtype == NDP_I32 && in[1].rows == in[0].rows,
                    "rope: positions " NDP_SHAPE " for x " NDP_SHAPE, NDP_SHAPE_ARGS(in[1]), NDP_SHAPE_ARGS(in[0]));
    NDP_SHAPE_CHECK(in[2].cols == dim && in[2].dtype == ndp_wide(in[0].dtype),
                    "rope: table " NDP_SHAPE " for %d columns of a head", NDP_SHAPE_ARGS(in[2]), dim);
    ndp_shape_set(&out[0], in[0].rows, in[0].cols, in[0].dtype);
    return NDP_OK;
}

static ndp_status backward(ndp_bwd *b) {
    int g = b->grad_out(b, 0), made;
    if (g < 0 || !b->wants(b, 0))
        return NDP_OK;
    ndp_op_attr back = *b->attr;
    back.inverse = !back.inverse;
    return b->input_grad(b, &ndp_op_rope, &back, (int[]){g, b->in[1], b->in[2]}, 3, (int[]){0}, 1, -1, &made);
}

static void cost(const ndp_op_call *c, double *flops, double *bytes) {
    double turned = (double)c->in[0].rows * (double)turned_heads(c->attr) * rotary_dim(c->attr);
    *flops = 3 * turned;
    *bytes = 2 * turned * (double)ndp_dtype_size(c->in[0].dtype);
}

const ndp_op ndp_op_rope = {
    .id = NDP_OP_rope,
    .name = "rope",
    .n_in = 3,
    .n_out = 1,
    .alias = 0,
    .rows = NDP_ROWS_ALIKE,
    .shape = shape,
    .backward = backward,
    .cost = cost,
};
