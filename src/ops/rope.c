/* Rotary positions on the columns of the query and key heads, the first of x, in place; its backward is the rotation
 * back. (A table whose cosines and sines have another amplitude than 1 also scales: then the backward is the
 * transpose.)
 */
#include "ops/flow.h"
#include "ops/shape.h"

static int64_t turned_heads(const ndp_op_attr *a) { return (int64_t)a->heads + a->kv_heads; }

static int rotary_dim(const ndp_op_attr *a) { return a->rotary_dim ? a->rotary_dim : a->head_dim; }

static ndp_status shape(ndp_op_call *c) {
    const ndp_op_attr *a = c->attr;
    const ndp_view *x = &c->in[0], *pos = &c->in[1], *table = &c->in[2];
    int dim = rotary_dim(a);
    NDP_SHAPE_CHECK(
        dim % 2 == 0 && a->skipped >= 0 && a->skipped + dim <= a->head_dim && x->cols >= turned_heads(a) * a->head_dim,
        "rope: %d + %d heads of %d columns in x " NDP_SHAPE, a->heads, a->kv_heads, a->head_dim, NDP_SHAPE_ARGS(*x));
    NDP_SHAPE_CHECK(pos->dtype == NDP_I32 && pos->rows == x->rows, "rope: positions " NDP_SHAPE " for x " NDP_SHAPE,
                    NDP_SHAPE_ARGS(*pos), NDP_SHAPE_ARGS(*x));
    NDP_SHAPE_CHECK(table->cols == dim && table->dtype == ndp_wide(x->dtype),
                    "rope: table " NDP_SHAPE " for %d columns of a head", NDP_SHAPE_ARGS(*table), dim);
    ndp_shape_like(&c->out[0], x);
    return NDP_OK;
}

static ndp_status backward(ndp_bwd *b) {
    ndp_op_attr back = *b->attr;
    back.inverse = !back.inverse;
    return ndp_input_grad(b, &ndp_op_rope, &back, (int[]){b->grad_out(b, 0), b->in[1], b->in[2]}, 3, -1);
}

static void cost(const ndp_op_call *c, double *flops, double *bytes) {
    double turned = (double)c->in[0].rows * (double)turned_heads(c->attr) * rotary_dim(c->attr);
    *flops = 3 * turned;
    *bytes = 2 * turned * (double)ndp_dtype_size(c->in[0].dtype);
}

const ndp_op ndp_op_rope = {
    NDP_NAMED(rope),
    .n_in = 3,
    .n_out = 1,
    .in_place = true,
    .rows = NDP_ROWS_ALIKE,
    .shape = shape,
    .backward = backward,
    .cost = cost,
    .reads = NDP_READS_heads | NDP_READS_kv_heads | NDP_READS_head_dim | NDP_READS_rotary_dim | NDP_READS_inverse |
             NDP_READS_skipped | NDP_READS_neighbours,
    NDP_FLOWS({.in = {NDP_IS(EITHER, 0, "tc"), NDP_IS(OPERAND, 1, "t1"), NDP_IS(OPERAND, 2, "..")},
               .out = {NDP_IS(EITHER, 0, "tc")}}),
};
