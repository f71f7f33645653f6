/* Rows of operands in and out of a kernel's buffers, which are fp32, and its work memory. Needs LANES and the vectors
 * of cpu_attention_vector.h. */
#ifndef NDP_OPS_CPU_CPU_BLOCK_ROWS_H
#define NDP_OPS_CPU_CPU_BLOCK_ROWS_H

#include "ops/op.h"

INLINE void load_row(const ndp_view *v, int64_t row, int64_t col, float *out, int n, int n_pad) {
    int64_t at = row * v->ld + col;
    int i = 0;
    if (v->dtype == NDP_F32)
        for (; i + LANES <= n; i += LANES)
            vec_store(out + i, vec_load((const float *)v->data + at + i));
    else if (v->dtype == NDP_BF16)
        for (; i + LANES <= n; i += LANES)
            vec_store(out + i, vec_load_bf16((const uint16_t *)v->data + at + i));
    for (; i < n; i++)
        out[i] = (float)ndp_view_get(v, row, col + i);
    for (; i < n_pad; i++)
        out[i] = 0;
}

/* The row times `by`. */
INLINE void store_row(const ndp_view *v, int64_t row, int64_t col, const float *x, float by, int n) {
    int64_t at = row * v->ld + col;
    int i = 0;
    if (v->dtype == NDP_F32)
        for (; i + LANES <= n; i += LANES)
            vec_store((float *)v->data + at + i, vec_load(x + i) * by);
    else if (v->dtype == NDP_BF16)
        for (; i + LANES <= n; i += LANES)
            vec_store_bf16((uint16_t *)v->data + at + i, vec_load(x + i) * by);
    for (; i < n; i++)
        ndp_view_set(v, row, col + i, (double)(by * x[i]));
}

static void zero(float *x, int64_t n) { memset(x, 0, (size_t)n * sizeof(float)); }

/* The next n floats of the work memory; buffers stay 64-byte aligned as long as all are multiples of 16. */
static float *take(void **work, int64_t n) {
    float *p = *work;
    *work = p + n;
    return p;
}

#endif
