/* Sums over rows, by blocks of NDP_COLUMN_BLOCK columns: gradients of parameters. */
#ifndef NDP_OPS_CPU_ROWS_COLUMN_SUMS_H
#define NDP_OPS_CPU_ROWS_COLUMN_SUMS_H

#include "ops/cpu/rows/range_kernel.h"

/* sum += x */
NDP_INLINE void add_into(ndp_dtype type, int64_t n, const void *x, float *sum) {
    SIMD for (int64_t i = 0; i < n; i++) sum[i] += ndp_ld(x, type, i);
}

/* sum (+)= sums of rows of one block of columns, so many rows at a time: fp32 sums stay short. */
static inline int64_t rows_at_once(const ndp_op_call *c) {
    int place = ndp_split_place(c->exec);
    return place ? 8 * place : 64;
}

/* Column block number `b` of the gradient: its start and width; cleared when not accumulating. */
static inline float *gradient_block(const ndp_op_call *c, int64_t b, int64_t *start, int64_t *n) {
    const ndp_view *dw = &c->out[0];
    *start = b * NDP_COLUMN_BLOCK;
    *n = dw->cols - *start < NDP_COLUMN_BLOCK ? dw->cols - *start : NDP_COLUMN_BLOCK;
    float *g = ndp_at(dw, 0, *start);
    if (!c->attr->accumulate)
        memset(g, 0, (size_t)*n * 4);
    return g;
}

#endif
