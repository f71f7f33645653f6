/* rmsnorm, add_rmsnorm and the gradients. */
#include "ops/cpu/rows/column_sums.h"
#include "ops/cpu/rows/row_parts.h"

#include <math.h>

NDP_INLINE float squares(ndp_dtype type, int64_t i, int64_t n, const void *x) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = i; j < n; j++)
        sum += ndp_ld(x, type, j) * ndp_ld(x, type, j);
    return sum;
}

/* y = x rstd (w + offset); returns rstd. The tensor axis splits this sum where a norm is of all heads. */
NDP_INLINE void norm_row(ndp_dtype type, int64_t n, const void *x, const void *w, void *y, float *rstd,
                         const ndp_op_call *c) {
    const ndp_op_attr *a = c->attr;
    int64_t at = ndp_split_at(n, ndp_split_place(c->exec));
    float sum = squares(type, 0, at, x), offset = (float)a->unit_offset;
    if (at < n)
        sum += squares(type, at, n, x);
    float r = 1.0f / sqrtf(sum / (float)n + (float)a->eps);
    SIMD for (int64_t i = 0; i < n; i++) ndp_st(y, type, i, ndp_ld(x, type, i) * r * (ndp_ld(w, type, i) + offset));
    *rstd = r;
}

void NDP_RANGE_KERNEL(rmsnorm)(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *x = &c->in[0];
    int64_t n = c->in[1].cols;
    for (int64_t t = first; t < last; t++)
        for (int64_t g = 0; g < x->cols / n; g++)
            NDP_BY_TYPE(x->dtype, norm_row, n, ndp_at(x, t, g * n), c->in[1].data, ndp_at(&c->out[0], t, g * n),
                        ndp_at(&c->out[1], t, g), c);
}

void NDP_RANGE_KERNEL(add_rmsnorm)(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *x = &c->in[0], *s = &c->out[0];
    for (int64_t t = first; t < last; t++) {
        NDP_BY_TYPES(x->dtype, x->dtype, add_row, x->cols, ndp_at(x, t, 0), ndp_at(&c->in[1], t, 0), ndp_at(s, t, 0));
        NDP_BY_TYPE(x->dtype, norm_row, x->cols, ndp_at(s, t, 0), c->in[2].data, ndp_at(&c->out[1], t, 0),
                    ndp_at(&c->out[2], t, 0), c);
    }
}

/* dx = acc + r dy w - x r^3 sum(dy w x) / n */
NDP_INLINE void norm_dx_row(ndp_dtype type, int64_t n, const void *dy, const void *x, const void *w, float r,
                            const void *acc, void *dx, float offset) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++)
        sum += ndp_ld(dy, type, i) * (ndp_ld(w, type, i) + offset) * ndp_ld(x, type, i);
    float along = sum / (float)n * r * r * r;
    if (acc)
        SIMD for (int64_t i = 0; i < n; i++)
            ndp_st(dx, type, i,
                   ndp_ld(acc, type, i) +
                       (ndp_ld(dy, type, i) * (ndp_ld(w, type, i) + offset) * r - ndp_ld(x, type, i) * along));
    else
        SIMD for (int64_t i = 0; i < n; i++)
            ndp_st(dx, type, i, ndp_ld(dy, type, i) * (ndp_ld(w, type, i) + offset) * r - ndp_ld(x, type, i) * along);
}

void NDP_RANGE_KERNEL(rmsnorm_dx)(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *dy = &c->in[0], *acc = &c->in[4];
    int64_t n = c->in[2].cols;
    for (int64_t t = first; t < last; t++)
        for (int64_t g = 0; g < c->in[3].cols; g++) {
            float r = *(const float *)ndp_at(&c->in[3], t, g);
            NDP_BY_TYPE(dy->dtype, norm_dx_row, n, ndp_at(dy, t, g * n), ndp_at(&c->in[1], t, g * n), c->in[2].data, r,
                        acc->data ? ndp_at(acc, t, g * n) : NULL, ndp_at(&c->out[0], t, g * n),
                        (float)c->attr->unit_offset);
        }
}

NDP_INLINE void norm_dw_block(ndp_dtype type, const ndp_op_call *c, int64_t start, int64_t n, float *total) {
    const ndp_view *dy = &c->in[0], *x = &c->in[1], *rstd = &c->in[2];
    int64_t runs = rstd->cols, width = dy->cols / runs, rows = dy->rows * runs; /* runs of a row count as rows */
    for (int64_t t0 = 0, some = rows_at_once(c); t0 < rows; t0 += some) {
        int64_t t1 = t0 + some < rows ? t0 + some : rows;
        float part[NDP_COLUMN_BLOCK] = {0};
        for (int64_t t = t0; t < t1; t++) {
            int64_t row = t / runs, run = t % runs;
            const void *d = ndp_at(dy, row, run * width + start), *v = ndp_at(x, row, run * width + start);
            float r = *(const float *)ndp_at(rstd, row, run);
            SIMD for (int64_t i = 0; i < n; i++) part[i] += ndp_ld(d, type, i) * (ndp_ld(v, type, i) * r);
        }
        add_into(NDP_F32, n, part, total);
    }
}

void NDP_RANGE_KERNEL(rmsnorm_dw)(const ndp_op_call *c, int64_t first, int64_t last) {
    for (int64_t b = first, start, n; b < last; b++) {
        float *g = gradient_block(c, b, &start, &n);
        NDP_BY_TYPE(c->in[0].dtype, norm_dw_block, c, start, n, g);
    }
}
