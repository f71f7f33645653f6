/* Dropout: each element is 0 with probability attr.drop, else divided by 1 - drop (dropout.h says which). The gradient
 * goes through the same elements, so it is the same op. */
#include "ops/flow.h"
#include "ops/shape.h"

static ndp_status shape(ndp_op_call *c) {
    const ndp_view *x = &c->in[0], *key = &c->in[1], *unit = &c->in[2];
    NDP_SHAPE_CHECK(key->dtype == NDP_I32 && key->rows == x->rows && key->cols == 1 && unit->dtype == NDP_I32 &&
                        unit->rows == 1 && unit->cols == 1,
                    "dropout: x " NDP_SHAPE ", keys " NDP_SHAPE ", unit " NDP_SHAPE, NDP_SHAPE_ARGS(*x),
                    NDP_SHAPE_ARGS(*key), NDP_SHAPE_ARGS(*unit));
    NDP_SHAPE_CHECK(c->attr->drop >= 0 && c->attr->drop < 1 - 0x1p-32 && c->attr->first >= 0,
                    "dropout: a share of %g, from column %lld on, of x " NDP_SHAPE, c->attr->drop,
                    (long long)c->attr->first, NDP_SHAPE_ARGS(*x));
    ndp_shape_like(&c->out[0], x);
    return NDP_OK;
}

static ndp_status backward(ndp_bwd *b) {
    return ndp_input_grad(b, &ndp_op_dropout, b->attr, (int[]){b->grad_out(b, 0), b->in[1], b->in[2]}, 3, -1);
}

/* flops: ten rounds of about a dozen integer operations for four elements. */
const ndp_op ndp_op_dropout = {
    NDP_NAMED(dropout),
    .n_in = 3,
    .n_out = 1,
    .rows = NDP_ROWS_ALIKE,
    .shape = shape,
    .backward = backward,
    .flops = 32,
    .reads = NDP_READS_drop | NDP_READS_first | NDP_READS_tag,
    NDP_FLOWS({.in = {NDP_IS(EITHER, 0, "tc"), NDP_IS(PLACED, 1, "t1"), NDP_IS(OPERAND, 2, "..")},
               .out = {NDP_IS(EITHER, 0, "tc")}}),
};
