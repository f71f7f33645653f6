/* Rows and pieces of rows, copied, converted and added: what several families share. */
#ifndef NDP_OPS_CPU_ROWS_ROW_PARTS_H
#define NDP_OPS_CPU_ROWS_ROW_PARTS_H

#include "ops/cpu/rows/range_kernel.h"

/* y = x */
NDP_INLINE void convert_row(ndp_dtype from, ndp_dtype to, int64_t n, const void *x, void *y) {
    SIMD for (int64_t i = 0; i < n; i++) ndp_st(y, to, i, ndp_ld(x, from, i));
}

/* n elements from (row, col) of x to those of y. */
static inline void copy_piece(const ndp_view *x, int64_t row, int64_t col, const ndp_view *y, int64_t to_row,
                              int64_t to_col, int64_t n) {
    size_t size = ndp_dtype_size(x->dtype); /* of any type, where it stays: counts are fp64 */
    if (x->dtype == y->dtype)
        memcpy((char *)y->data + (size_t)(to_row * y->ld + to_col) * size,
               (const char *)x->data + (size_t)(row * x->ld + col) * size, (size_t)n * size);
    else
        NDP_BY_TYPES(x->dtype, y->dtype, convert_row, n, ndp_at(x, row, col), ndp_at(y, to_row, to_col));
}

/* y = by x */
NDP_INLINE void scale_into(ndp_dtype from, ndp_dtype to, int64_t n, const void *x, float by, void *y) {
    SIMD for (int64_t i = 0; i < n; i++) ndp_st(y, to, i, ndp_ld(x, from, i) * by);
}

/* Terms of one fp32 sum; the sums of longer rows are summed. */
enum { NDP_DOT_TERMS = 256 };

/* *out = a . b */
NDP_INLINE void dot_row(ndp_dtype a_type, ndp_dtype b_type, int64_t n, const void *a, const void *b, float *out) {
    float total = 0;
    for (int64_t start = 0; start < n; start += NDP_DOT_TERMS) {
        int64_t end = start + NDP_DOT_TERMS < n ? start + NDP_DOT_TERMS : n;
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = start; i < end; i++)
            sum += ndp_ld(a, a_type, i) * ndp_ld(b, b_type, i);
        total += sum;
    }
    *out = total;
}

/* s = a + b */
NDP_INLINE void add_row(ndp_dtype from, ndp_dtype to, int64_t n, const void *a, const void *b, void *s) {
    SIMD for (int64_t i = 0; i < n; i++) ndp_st(s, to, i, ndp_ld(a, from, i) + ndp_ld(b, from, i));
}

/* y += x */
NDP_INLINE void add_to_row(ndp_dtype from, ndp_dtype to, int64_t n, const void *x, void *y) {
    SIMD for (int64_t i = 0; i < n; i++) ndp_st(y, to, i, ndp_ld(y, to, i) + ndp_ld(x, from, i));
}

#endif
