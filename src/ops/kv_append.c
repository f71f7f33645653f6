/* Writes new rows into a cache of keys or values; only generation uses it. */
#include "ops/ref.h"
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

/* A copy is the same on every backend. */
static void kernel(const ndp_op_call *c) {
    const ndp_view *from = &c->in[0], *cache = &c->in[2];
    size_t size = ndp_dtype_size(from->dtype);
    int64_t row = ndp_ref_int(&c->in[1], 0);
    for (int64_t i = 0; i < from->rows; i++)
        memcpy((char *)cache->data + (size_t)((row + i) * cache->ld) * size,
               (const char *)from->data + (size_t)(i * from->ld) * size, (size_t)from->cols * size);
}

const ndp_op ndp_op_kv_append = {
    .name = "kv_append",
    .n_in = 3,
    .n_out = 1,
    .alias = 2,
    .shape = shape,
    .cost = cost,
    .kernel = {kernel, kernel},
};
