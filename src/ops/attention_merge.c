/* Two attentions of the same queries over disjoint keys become one: what each would be scaled by in a softmax over both
 * follows from their lse. -inf: saw nothing. */
#include "ops/flow.h"
#include "ops/shape.h"

static ndp_status shape(ndp_op_call *c) {
    const ndp_view *o = &c->in[0], *lse = &c->in[1];
    NDP_SHAPE_SAME(c, *o, c->in[2]);
    NDP_SHAPE_SAME(c, *lse, c->in[3]);
    NDP_SHAPE_CHECK(o->dtype == ndp_wide(o->dtype) && lse->dtype == o->dtype && lse->rows == o->rows && lse->cols > 0 &&
                        o->cols % lse->cols == 0,
                    "attention_merge: o " NDP_SHAPE ", lse " NDP_SHAPE, NDP_SHAPE_ARGS(*o), NDP_SHAPE_ARGS(*lse));
    ndp_shape_like(&c->out[0], o);
    ndp_shape_like(&c->out[1], lse);
    return NDP_OK;
}

const ndp_op ndp_op_attention_merge = {
    NDP_NAMED(attention_merge),
    .n_in = 4,
    .n_out = 2,
    .in_place = true,
    .rows = NDP_ROWS_ALIKE,
    .shape = shape,
    .flops = 3,
    NDP_FLOWS({.node = &ndp_op_attention,
               .in = {NDP_IS(ANY, 0, "tc"), NDP_IS(ANY, 0, "th"), NDP_IS(ANY, 0, "tc"), NDP_IS(ANY, 0, "th")}}),
};
