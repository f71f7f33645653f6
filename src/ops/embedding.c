/* x[t] = table[ids[t] - first], and the gradient of the table; ids of rows that the table has not (those of other
 * slices) give zeros and nothing. */
#include "ops/cpu/rows.h"
#include "ops/ref.h"
#include "ops/shape.h"

static ndp_status shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    (void)attr;
    NDP_SHAPE_CHECK(in[0].dtype == NDP_I32 && in[0].cols == 1, "embedding: ids " NDP_SHAPE, NDP_SHAPE_ARGS(in[0]));
    ndp_shape_set(&out[0], in[0].rows, in[1].cols, in[1].dtype);
    return NDP_OK;
}

static ndp_status backward(ndp_bwd *b) {
    int g = b->grad_out(b, 0);
    if (g < 0 || !b->wants(b, 1))
        return NDP_OK;
    return b->weight_grad(b, &ndp_op_embedding_dw, b->attr, (int[]){b->in[0], g}, 2, 1);
}

/* Reads only the rows that are named. */
static void cost(const ndp_op_call *c, double *flops, double *bytes) {
    *flops = 0;
    *bytes = 2 * ndp_view_bytes(&c->out[0]);
}

/* The row of the table that row t names; -1: none. */
static int64_t named_row(const ndp_op_call *c, const ndp_view *table, int64_t t) {
    int64_t row = ndp_ref_int(&c->in[0], t) - c->attr->first;
    return row >= 0 && row < table->rows ? row : -1;
}

static void kernel_ref(const ndp_op_call *c) {
    for (int64_t t = 0; t < c->out[0].rows; t++) {
        int64_t row = named_row(c, &c->in[1], t);
        for (int64_t j = 0; j < c->out[0].cols; j++)
            ndp_view_set(&c->out[0], t, j, row < 0 ? 0 : ndp_view_get(&c->in[1], row, j));
    }
}

static void kernel_cpu(const ndp_op_call *c) { ndp_rows_run(c, c->out[0].rows, ndp_rows_best()->embedding); }

const ndp_op ndp_op_embedding = {
    .name = "embedding",
    .n_in = 2,
    .n_out = 1,
    .alias = -1,
    .shape = shape,
    .backward = backward,
    .cost = cost,
    .kernel = {kernel_cpu, kernel_ref},
};

/* The table's rows are not seen in the operands: the caller sets them, they are the parameter's. */
static ndp_status dw_shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    (void)attr;
    NDP_SHAPE_CHECK(in[0].rows == in[1].rows, "embedding_dw: ids " NDP_SHAPE " for dx " NDP_SHAPE,
                    NDP_SHAPE_ARGS(in[0]), NDP_SHAPE_ARGS(in[1]));
    ndp_shape_set(&out[0], out[0].rows, in[1].cols, ndp_wide(in[1].dtype));
    return NDP_OK;
}

static void dw_cost(const ndp_op_call *c, double *flops, double *bytes) {
    *flops = (double)c->in[1].rows * (double)c->in[1].cols;
    *bytes = 3 * ndp_view_bytes(&c->in[1]) + (c->attr->accumulate ? 0 : ndp_view_bytes(&c->out[0]));
}

static void dw_ref(const ndp_op_call *c) {
    const ndp_view *dx = &c->in[1], *dw = &c->out[0];
    if (!c->attr->accumulate)
        for (int64_t r = 0; r < dw->rows; r++)
            for (int64_t j = 0; j < dw->cols; j++)
                ndp_view_set(dw, r, j, 0);
    for (int64_t t = 0; t < dx->rows; t++) {
        int64_t row = named_row(c, dw, t);
        for (int64_t j = 0; row >= 0 && j < dx->cols; j++)
            ndp_ref_give(dw, row, j, ndp_view_get(dx, t, j), true);
    }
}

static void dw_cpu(const ndp_op_call *c) {
    ndp_rows_run(c, ndp_column_blocks(c->out[0].cols), ndp_rows_best()->embedding_dw);
}

const ndp_op ndp_op_embedding_dw = {
    .name = "embedding_dw",
    .n_in = 2,
    .n_out = 1,
    .alias = -1,
    .shape = dw_shape,
    .cost = dw_cost,
    .kernel = {dw_cpu, dw_ref},
};
