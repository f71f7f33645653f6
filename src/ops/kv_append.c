/* Writes new rows into a cache of keys or values; only generation uses it. */
#include "ops/shape.h"

static ndp_status shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    (void)attr;
    NDP_SHAPE_CHECK(in[0].cols == in[2].cols && in[0].dtype == in[2].dtype && in[0].rows <= in[2].rows,
                    "kv_append: " NDP_SHAPE " into cache " NDP_SHAPE, NDP_SHAPE_ARGS(in[0]), NDP_SHAPE_ARGS(in[2]));
    NDP_SHAPE_CHECK(in[1].dtype == NDP_I32, "kv_append: row " NDP_SHAPE, NDP_SHAPE_ARGS(in[1]));
    ndp_shape_set(&out[0], in[2].rows, in[2].cols, in[2].dtype);
    return NDP_OK;
}

static void cost(const ndp_op_call *c, double *flops, double *bytes) {
    *flops = 0;
    *bytes = 2 * ndp_view_bytes(&c->in[0]);
}

const ndp_op ndp_op_kv_append = {
    .id = NDP_OP_kv_append,
    .name = "kv_append",
    .n_in = 3,
    .n_out = 1,
    .alias = 2,
    .rows = NDP_ROWS_MIXED,
    .shape = shape,
    .cost = cost,
};
