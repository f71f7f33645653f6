/* rope. */
#include "ops/ref/ref_kernels.h"

static ndp_status run_rope(const ndp_op_call *c) {
    const ndp_view *x = &c->in[0], *table = &c->in[2];
    int64_t half = table->cols / 2, heads = (int64_t)c->attr->heads + c->attr->kv_heads;
    bool pairs = c->attr->neighbours;
    for (int64_t t = 0; t < x->rows; t++)
        for (int64_t i = 0; i < heads * half; i++) {
            int64_t p = ndp_int_at(&c->in[1], t), at = i / half * c->attr->head_dim + c->attr->skipped;
            int64_t first = at + (pairs ? 2 : 1) * (i % half), second = first + (pairs ? 1 : half);
            double a = ndp_view_get(x, t, first), b = ndp_view_get(x, t, second);
            double cosine = ndp_view_get(table, p, i % half), sine = ndp_view_get(table, p, half + i % half);
            sine = c->attr->inverse ? -sine : sine;
            ndp_view_set(x, t, first, a * cosine - b * sine);
            ndp_view_set(x, t, second, b * cosine + a * sine);
        }
    return NDP_OK;
}

const ndp_kernel ndp_ref_rope = {.run = run_rope};
