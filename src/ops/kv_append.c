/* Writes new rows into a cache of keys or values, each to a row of its own; only generation uses it. */
#include "ops/flow.h"
#include "ops/shape.h"

static ndp_status shape(ndp_op_call *c) {
    const ndp_view *cache = &c->in[0], *fresh = &c->in[1], *row = &c->in[2];
    NDP_SHAPE_CHECK(fresh->cols == cache->cols && fresh->dtype == cache->dtype && fresh->rows <= cache->rows,
                    "kv_append: " NDP_SHAPE " into cache " NDP_SHAPE, NDP_SHAPE_ARGS(*fresh), NDP_SHAPE_ARGS(*cache));
    NDP_SHAPE_CHECK(row->dtype == NDP_I32 && row->rows == fresh->rows, "kv_append: rows " NDP_SHAPE " for " NDP_SHAPE,
                    NDP_SHAPE_ARGS(*row), NDP_SHAPE_ARGS(*fresh));
    ndp_shape_like(&c->out[0], cache);
    return NDP_OK;
}

static void cost(const ndp_op_call *c, double *flops, double *bytes) {
    (void)flops;
    *bytes = 2 * ndp_view_bytes(&c->in[1]);
}

const ndp_op ndp_op_kv_append = {
    NDP_NAMED(kv_append),
    .n_in = 3,
    .n_out = 1,
    .in_place = true,
    .rows = NDP_ROWS_MIXED,
    .shape = shape,
    .cost = cost,
    NDP_FLOWS({.in = {NDP_IS(ANY, 0, "sc"), NDP_IS(OPERAND, 1, "t."), NDP_IS(OPERAND, 2, "t1")},
               .out = {NDP_IS(RESULT, 0, "sc", .times = NDP_TIMES_UNSUMMED)}}),
};
