/* copy. */
#include "ops/cpu/rows/row_parts.h"

NDP_INLINE void sum_row(ndp_dtype from, ndp_dtype to, int64_t n, const void *x, const void *acc, void *y) {
    SIMD for (int64_t i = 0; i < n; i++) ndp_st(y, to, i, ndp_ld(x, from, i) + ndp_ld(acc, to, i));
}

/* With an earlier gradient the sum, rounded once. */
void NDP_RANGE_KERNEL(copy)(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *x = &c->in[0], *acc = &c->in[1], *y = &c->out[0];
    for (int64_t t = first; t < last; t++)
        if (acc->data)
            NDP_BY_TYPES(x->dtype, y->dtype, sum_row, y->cols, ndp_at(x, t, 0), ndp_at(acc, t, 0), ndp_at(y, t, 0));
        else
            copy_piece(x, t, 0, y, t, 0, y->cols);
}
