/* Row kernels of what is cut into parts, heads or keys, and put together again. Part of rows_impl.h. */
#ifndef NDP_OPS_CPU_ROWS_PARTS_H
#define NDP_OPS_CPU_ROWS_PARTS_H

#include "ops/cpu/rows.h"
#include "ops/cpu/vector.h"
#include "ops/heads.h"

#include <math.h>

NDP_INLINE void convert_row(ndp_dtype from, ndp_dtype to, int64_t n, const void *x, void *y) {
    SIMD for (int64_t i = 0; i < n; i++) ndp_st(y, to, i, ndp_ld(x, from, i));
}

/* n elements from (row, col) of x to those of y. */
static void copy_piece(const ndp_view *x, int64_t row, int64_t col, const ndp_view *y, int64_t to_row, int64_t to_col,
                       int64_t n) {
    const void *from = ndp_at(x, row, col);
    void *to = ndp_at(y, to_row, to_col);
    if (x->dtype == y->dtype)
        memcpy(to, from, (size_t)n * ndp_dtype_size(x->dtype));
    else
        NDP_BY_TYPES(x->dtype, y->dtype, convert_row, n, from, to);
}

NDP_INLINE void sum_row(ndp_dtype from, ndp_dtype to, int64_t n, const void *x, const void *acc, void *y) {
    SIMD for (int64_t i = 0; i < n; i++) ndp_st(y, to, i, ndp_ld(x, from, i) + ndp_ld(acc, to, i));
}

/* With an earlier gradient the sum, rounded once. */
static void copy(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *x = &c->in[0], *acc = &c->in[1], *y = &c->out[0];
    for (int64_t t = first; t < last; t++)
        if (acc->data)
            NDP_BY_TYPES(x->dtype, y->dtype, sum_row, y->cols, ndp_at(x, t, 0), ndp_at(acc, t, 0), ndp_at(y, t, 0));
        else
            copy_piece(x, t, 0, y, t, 0, y->cols);
}

NDP_INLINE void add_to_row(ndp_dtype from, ndp_dtype to, int64_t n, const void *x, void *y) {
    SIMD for (int64_t i = 0; i < n; i++) ndp_st(y, to, i, ndp_ld(y, to, i) + ndp_ld(x, from, i));
}

static void add_bias(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *y = &c->in[0], *b = &c->in[1];
    for (int64_t t = first; t < last; t++)
        NDP_BY_TYPES(b->dtype, y->dtype, add_to_row, y->cols, b->data, ndp_at(y, t, 0));
}

static void heads_split(const ndp_op_call *c, int64_t first, int64_t last) {
    ndp_heads h = ndp_heads_of(c->attr);
    int64_t rows = c->in[0].rows;
    for (int64_t r = first; r < last; r++)
        copy_piece(&c->in[0], r % rows, ndp_heads_run(&h, r / rows) * h.width, &c->out[0], r, 0, h.width);
}

/* Columns [col, col + width) of row t of x: the sum over parts [p, end), in fp32 and in order, a block at a time. */
static void sum_parts(const ndp_view *y, const ndp_view *x, int64_t t, int64_t p, int64_t end, int64_t col,
                      int64_t width) {
    enum { BLOCK = 256 };
    const ndp_view sum = {(float[BLOCK]){0}, NDP_F32, 1, BLOCK, BLOCK};
    for (int64_t start = 0; start < width; start += BLOCK) {
        int64_t n = width - start < BLOCK ? width - start : BLOCK;
        memset(sum.data, 0, sizeof(float[BLOCK]));
        for (int64_t i = p; i < end; i++)
            NDP_BY_TYPES(y->dtype, NDP_F32, add_to_row, n, ndp_at(y, i * x->rows + t, start), sum.data);
        copy_piece(&sum, 0, 0, x, t, col + start, n);
    }
}

static void heads_merge(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *y = &c->in[0], *x = &c->out[0];
    ndp_heads h = ndp_heads_of(c->attr);
    for (int64_t t = first; t < last; t++)
        for (int64_t i = 0; i < x->cols / h.width; i++) {
            int64_t p, end;
            ndp_heads_parts(&h, i, &p, &end);
            if (end - p == 1)
                copy_piece(y, p * x->rows + t, 0, x, t, i * h.width, h.width);
            else
                sum_parts(y, x, t, p, end, i * h.width, h.width);
        }
}

/* o and o2 of one head become one, by their lse a and b; returns that of both. */
static float merge_head(int64_t n, float *o, float a, const float *o2, float b) {
    float high = a > b ? a : b, shift = high == -INFINITY ? 0 : high;
    float ea = expf(a - shift), eb = expf(b - shift), sum = ea + eb, by = sum == 0 ? 0 : 1 / sum;
    float wa = ea * by, wb = eb * by;
    SIMD for (int64_t i = 0; i < n; i++) o[i] = wa * o[i] + wb * o2[i];
    return shift + logf(sum);
}

static void attention_merge(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *o = &c->in[0], *lse = &c->in[1], *o2 = &c->in[2], *lse2 = &c->in[3];
    int64_t d = o->cols / lse->cols;
    for (int64_t t = first; t < last; t++)
        for (int64_t h = 0; h < lse->cols; h++) {
            float a = *(const float *)ndp_at(lse, t, h), b = *(const float *)ndp_at(lse2, t, h);
            *(float *)ndp_at(&c->out[1], t, h) = merge_head(d, ndp_at(o, t, h * d), a, ndp_at(o2, t, h * d), b);
        }
}

#endif
