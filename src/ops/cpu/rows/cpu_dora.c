/* dora_squares, dora and the gradient of its m. */
#include "ops/cpu/rows/column_sums.h"

#include <math.h>

/* Rows of w that share a block of a's columns in the cache, and the columns of the block. */
enum { ROWS = 16, BLOCK = 256 };

/* Of columns k .. k + n - 1 of row i of w + scale b a. */
NDP_INLINE float squares_of_block(ndp_dtype type, const ndp_op_call *c, int64_t i, int64_t k, int64_t n) {
    const ndp_view *a = &c->in[1];
    const void *w = ndp_at(&c->in[0], i, k), *b = ndp_at(&c->in[2], i, 0);
    float change[BLOCK] = {0}, scale = (float)c->attr->scale, sum = 0;
    for (int64_t j = 0; j < a->rows; j++) {
        const void *row = ndp_at(a, j, k);
        float by = ndp_ld(b, type, j);
        SIMD for (int64_t l = 0; l < n; l++) change[l] += by * ndp_ld(row, type, l);
    }
#pragma omp simd reduction(+ : sum)
    for (int64_t l = 0; l < n; l++) {
        float x = ndp_ld(w, type, l) + scale * change[l];
        sum += x * x;
    }
    return sum;
}

/* The tensor axis splits this sum where ranks have some columns of w each. */
NDP_INLINE void squares_of_rows(ndp_dtype type, const ndp_op_call *c, int64_t first, int64_t last) {
    int64_t cols = c->in[0].cols, at = ndp_split_at(cols, ndp_split_place(c->exec));
    float sums[2][ROWS] = {{0}};
    for (int half = 0; half < 2; half++)
        for (int64_t k = half ? at : 0, end = half ? cols : at; k < end; k += BLOCK)
            for (int64_t i = first; i < last; i++)
                sums[half][i - first] += squares_of_block(type, c, i, k, end - k < BLOCK ? end - k : BLOCK);
    for (int64_t i = first; i < last; i++)
        *(float *)ndp_at(&c->out[0], i, 0) = sums[0][i - first] + sums[1][i - first];
}

void NDP_RANGE_KERNEL(dora_squares)(const ndp_op_call *c, int64_t first, int64_t last) {
    for (int64_t i = first; i < last; i += ROWS)
        NDP_BY_TYPE(c->in[0].dtype, squares_of_rows, c, i, i + ROWS < last ? i + ROWS : last);
}

/* by[i]: what column `start` + i of u is multiplied by; 1 where the op leaves it as it is. */
NDP_INLINE void scales(ndp_dtype type, const ndp_op_call *c, int64_t start, int64_t n, float *by) {
    const ndp_view *m = &c->in[1], *sq = &c->in[2];
    for (int64_t l = 0; l < n; l++) {
        int64_t i = start + l - c->attr->first;
        by[l] = i >= 0 && i < sq->rows ? ndp_ld(m->data, type, i) / sqrtf(*(const float *)ndp_at(sq, i, 0)) : 1.0f;
    }
}

NDP_INLINE void scale_row(ndp_dtype type, int64_t n, const void *u, const float *by, void *y) {
    SIMD for (int64_t i = 0; i < n; i++) ndp_st(y, type, i, ndp_ld(u, type, i) * by[i]);
}

void NDP_RANGE_KERNEL(dora)(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *u = &c->in[0];
    float by[BLOCK];
    for (int64_t start = 0; start < u->cols; start += BLOCK) {
        int64_t n = u->cols - start < BLOCK ? u->cols - start : BLOCK;
        NDP_BY_TYPE(u->dtype, scales, c, start, n, by);
        for (int64_t t = first; t < last; t++)
            NDP_BY_TYPE(u->dtype, scale_row, n, ndp_at(u, t, start), by, ndp_at(&c->out[0], t, start));
    }
}

NDP_INLINE void dm_block(ndp_dtype type, const ndp_op_call *c, int64_t start, int64_t n, float *total) {
    const ndp_view *dy = &c->in[0], *sq = &c->in[2];
    float by[NDP_COLUMN_BLOCK];
    for (int64_t i = 0; i < n; i++)
        by[i] = 1.0f / sqrtf(*(const float *)ndp_at(sq, start + i, 0));
    for (int64_t t0 = 0, some = rows_at_once(c); t0 < dy->rows; t0 += some) {
        int64_t t1 = t0 + some < dy->rows ? t0 + some : dy->rows;
        float part[NDP_COLUMN_BLOCK] = {0};
        for (int64_t t = t0; t < t1; t++) {
            const void *d = ndp_at(dy, t, c->attr->first + start), *u = ndp_at(&c->in[1], t, c->attr->first + start);
            SIMD for (int64_t i = 0; i < n; i++) part[i] += ndp_ld(d, type, i) * (ndp_ld(u, type, i) * by[i]);
        }
        add_into(NDP_F32, n, part, total);
    }
}

void NDP_RANGE_KERNEL(dora_dm)(const ndp_op_call *c, int64_t first, int64_t last) {
    for (int64_t b = first, start, n; b < last; b++) {
        float *g = gradient_block(c, b, &start, &n);
        NDP_BY_TYPE(c->in[0].dtype, dm_block, c, start, n, g);
    }
}
