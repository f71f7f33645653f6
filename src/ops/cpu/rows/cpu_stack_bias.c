/* stack_bias, stack_bias_db. */
#include "ops/cpu/rows/column_sums.h"
#include "ops/cpu/rows/row_parts.h"
#include "ops/shape.h"

/* y += by b */
NDP_INLINE void add_part(ndp_dtype from, ndp_dtype to, int64_t n, const void *b, float by, void *y) {
    SIMD for (int64_t i = 0; i < n; i++) ndp_st(y, to, i, ndp_ld(y, to, i) + by * ndp_ld(b, from, i));
}

void NDP_RANGE_KERNEL(stack_bias)(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *y = &c->in[0], *b = &c->in[1], *offsets = &c->in[2];
    int64_t e = 0;
    for (int64_t t = first; t < last; t++) {
        while (e < b->rows && ndp_int_at(offsets, e + 1) <= t)
            e++;
        if (e == b->rows)
            return;
        NDP_BY_TYPES(b->dtype, y->dtype, add_part, y->cols, ndp_at(b, e, 0), 1.0f / (float)c->attr->parts,
                     ndp_at(y, t, 0));
    }
}

/* Columns start .. start + n - 1 of the sum over rows t .. end - 1, some at a time: fp32 sums stay short. */
static void sum_group(const ndp_op_call *c, int64_t t, int64_t end, int64_t start, int64_t n, float *db) {
    const ndp_view *dy = &c->in[0];
    for (int64_t some = rows_at_once(c); t < end; t += some) {
        float part[NDP_COLUMN_BLOCK] = {0};
        for (int64_t k = t; k < t + some && k < end; k++)
            NDP_BY_TYPE(dy->dtype, add_into, n, ndp_at(dy, k, start), part);
        for (int64_t i = 0; i < n; i++)
            db[i] += part[i] / (float)c->attr->parts;
    }
}

void NDP_RANGE_KERNEL(stack_bias_db)(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *db = &c->out[0], *offsets = &c->in[1];
    int64_t start = first * NDP_COLUMN_BLOCK, stop = last * NDP_COLUMN_BLOCK;
    for (int64_t n; start < stop && start < db->cols; start += n) {
        n = db->cols - start < NDP_COLUMN_BLOCK ? db->cols - start : NDP_COLUMN_BLOCK;
        for (int64_t e = 0; e < db->rows; e++) {
            if (!c->attr->accumulate)
                memset(ndp_at(db, e, start), 0, (size_t)n * sizeof(float));
            sum_group(c, ndp_int_at(offsets, e), ndp_int_at(offsets, e + 1), start, n, ndp_at(db, e, start));
        }
    }
}
