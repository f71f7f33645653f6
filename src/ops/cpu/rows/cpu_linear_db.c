/* linear_db. */
#include "ops/cpu/rows/column_sums.h"

NDP_INLINE void sum_block(ndp_dtype type, const ndp_op_call *c, int64_t start, int64_t n, float *total) {
    const ndp_view *dy = &c->in[0];
    for (int64_t t0 = 0, some = rows_at_once(c); t0 < dy->rows; t0 += some) {
        int64_t t1 = t0 + some < dy->rows ? t0 + some : dy->rows;
        float part[NDP_COLUMN_BLOCK] = {0};
        for (int64_t t = t0; t < t1; t++)
            add_into(type, n, ndp_at(dy, t, start), part);
        add_into(NDP_F32, n, part, total);
    }
}

void NDP_RANGE_KERNEL(linear_db)(const ndp_op_call *c, int64_t first, int64_t last) {
    for (int64_t b = first, start, n; b < last; b++) {
        float *g = gradient_block(c, b, &start, &n);
        NDP_BY_TYPE(c->in[0].dtype, sum_block, c, start, n, g);
    }
}
