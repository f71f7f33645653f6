/* embedding, embedding_dw. */
#include "ops/cpu/rows/column_sums.h"

/* The row of the table that row t names; -1: none. */
static int64_t named_row(const ndp_op_call *c, const ndp_view *table, int64_t t) {
    const ndp_view *ids = &c->in[0];
    int64_t row = ((const int32_t *)ids->data)[t * ids->ld] - c->attr->first;
    return row >= 0 && row < table->rows ? row : -1;
}

void NDP_RANGE_KERNEL(embedding)(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *table = &c->in[1];
    size_t bytes = (size_t)c->out[0].cols * ndp_dtype_size(c->out[0].dtype);
    for (int64_t t = first; t < last; t++) {
        int64_t row = named_row(c, table, t);
        if (row >= 0)
            memcpy(ndp_at(&c->out[0], t, 0), ndp_at(table, row, 0), bytes);
        else
            memset(ndp_at(&c->out[0], t, 0), 0, bytes);
    }
}

void NDP_RANGE_KERNEL(embedding_dw)(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *dx = &c->in[1], *dw = &c->out[0];
    int64_t start = first * NDP_COLUMN_BLOCK;
    int64_t n = (last * NDP_COLUMN_BLOCK < dx->cols ? last * NDP_COLUMN_BLOCK : dx->cols) - start;
    if (!c->attr->accumulate)
        for (int64_t r = 0; r < dw->rows; r++)
            memset(ndp_at(dw, r, start), 0, (size_t)n * 4);
    for (int64_t i = 0; i < dx->rows; i++) {
        int64_t t = ndp_split_place(c->exec) ? dx->rows - 1 - i : i, row = named_row(c, dw, t);
        if (row >= 0)
            NDP_BY_TYPE(dx->dtype, add_into, n, ndp_at(dx, t, start), (float *)ndp_at(dw, row, start));
    }
}
