/* y = x, and an earlier gradient, in another storage type, or in another place. */
#include "ops/flow.h"
#include "ops/shape.h"

static bool is_real(ndp_dtype t) { return t == NDP_F32 || t == NDP_BF16 || t == NDP_F64; }

static ndp_status shape(ndp_op_call *c) {
    const ndp_view *x = &c->in[0];
    ndp_dtype type = c->attr->type;
    NDP_SHAPE_CHECK(type == x->dtype || (is_real(type) && is_real(x->dtype)), "copy: " NDP_SHAPE " to %s",
                    NDP_SHAPE_ARGS(*x), ndp_dtype_name(type));
    ndp_shape_set(&c->out[0], x->rows, x->cols, type);
    return ndp_shape_acc(c, 1);
}

/* The gradient keeps its type. */
static ndp_status backward(ndp_bwd *b) { return ndp_pass_grad(b, 0); }

const ndp_op ndp_op_copy = {
    NDP_NAMED(copy),
    .n_in = 2,
    .n_out = 1,
    .optional_in = 1u << 1,
    .rows = NDP_ROWS_ALIKE,
    .shape = shape,
    .backward = backward,
    .reads = NDP_READS_type,
    NDP_FLOWS({.sum = true}, {.any = true, .in = {NDP_IS(ANY, 0, "..")}}),
};
