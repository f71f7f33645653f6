/* embedding, embedding_dw. */
#include "ops/ref/ref_kernels.h"

/* The row of the table that row t names; -1: none. */
static int64_t named_row(const ndp_op_call *c, const ndp_view *table, int64_t t) {
    int64_t row = ndp_int_at(&c->in[0], t) - c->attr->first;
    return row >= 0 && row < table->rows ? row : -1;
}

static double embedding(const ndp_op_call *c, int64_t t, int64_t j) {
    int64_t row = named_row(c, &c->in[1], t);
    return row < 0 ? 0 : ndp_ref_in(c, 1, row, j);
}

NDP_REF_EACH(embedding)

static ndp_status run_embedding_dw(const ndp_op_call *c) {
    const ndp_view *dx = &c->in[1], *dw = &c->out[0];
    if (!c->attr->accumulate)
        ndp_view_clear(dw);
    for (int64_t t = 0; t < dx->rows; t++) {
        int64_t row = named_row(c, dw, t);
        for (int64_t j = 0; row >= 0 && j < dx->cols; j++)
            ndp_view_set(dw, row, j, ndp_view_get(dw, row, j) + ndp_view_get(dx, t, j));
    }
    return NDP_OK;
}

const ndp_kernel ndp_ref_embedding_dw = {.run = run_embedding_dw};
