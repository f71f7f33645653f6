/* w = the values of packed matrices, one below the other (tensor/packed.h). Its output's extents are not seen in the
 * operands: the caller sets them, they are the parameter's. No gradient flows through it: what is packed is not
 * trained. */
#include "ops/flow.h"
#include "ops/shape.h"

#include "tensor/packed.h"

static bool is_like(const ndp_view *v, const ndp_view *must) {
    return v->rows == must->rows && v->cols == must->cols && v->dtype == must->dtype;
}

/* How many blocks the whole tensor of a matrix of so many rows has at least. */
static int64_t blocks_until(const ndp_op_call *c, int64_t rows, int64_t cols) {
    const ndp_op_attr *a = c->attr;
    return rows * cols == 0 ? 0
                            : 1 + NDP_PACKED_NUMBER(a->first, a->row_blocks, a->row_group, cols, rows - 1, cols - 1);
}

static ndp_status shape(ndp_op_call *c) {
    ndp_view *w = &c->out[0];
    const ndp_view *codes = &c->in[NDP_PACKED_CODES], *scales = &c->in[NDP_PACKED_SCALES],
                   *nested = &c->in[NDP_PACKED_NESTED];
    ndp_packing packing = nested->rows > 0 ? NDP_PACKING_NF4 : NDP_PACKING_INT8;
    int64_t n = codes->rows > 0 ? codes->rows : 1, rows = w->rows / n;
    ndp_packed p = ndp_packed_of(packing, n, rows, w->cols, 0);
    int64_t group = c->attr->row_group > 0 ? c->attr->row_group : 1;
    NDP_SHAPE_CHECK(w->rows % n == 0, "unpack: %lld rows are not %lld matrices", (long long)w->rows, (long long)n);
    NDP_SHAPE_CHECK(is_like(codes, &p.part[NDP_PACKED_CODES]) && is_like(scales, &p.part[NDP_PACKED_SCALES]),
                    "unpack: " NDP_SHAPE " and " NDP_SHAPE " are no %s of [%lld,%lld]", NDP_SHAPE_ARGS(*codes),
                    NDP_SHAPE_ARGS(*scales), ndp_packing_name(packing), (long long)w->rows, (long long)w->cols);
    NDP_SHAPE_CHECK(c->attr->row_blocks == 0 || group * w->cols % NDP_PACKED_BLOCK == 0,
                    "unpack: %lld rows of %lld columns are not whole blocks", (long long)group, (long long)w->cols);
    NDP_SHAPE_CHECK(rows % group == 0, "unpack: %lld rows are no groups of %lld", (long long)rows, (long long)group);
    NDP_SHAPE_CHECK(packing == NDP_PACKING_INT8 ||
                        (nested->rows == n && nested->dtype == NDP_F32 &&
                         (nested->cols - 1) * NDP_PACKED_NEST >= blocks_until(c, rows, w->cols)),
                    "unpack: nested " NDP_SHAPE " for %lld blocks", NDP_SHAPE_ARGS(*nested),
                    (long long)blocks_until(c, rows, w->cols));
    ndp_shape_set(w, w->rows, w->cols, c->attr->type);
    return NDP_OK;
}

/* A product for each element. */
static void cost(const ndp_op_call *c, double *flops, double *bytes) {
    (void)bytes;
    *flops = ndp_elements(&c->out[0]);
}

const ndp_op ndp_op_unpack = {
    NDP_NAMED(unpack),
    .n_in = 3,
    .n_out = 1,
    .optional_in = 1u << NDP_PACKED_NESTED,
    .rows = NDP_ROWS_ALIKE,
    .shape = shape,
    .cost = cost,
    .reads = NDP_READS_type | NDP_READS_first | NDP_READS_row_blocks | NDP_READS_row_group,
    NDP_FLOWS({.node = NULL}),
};
