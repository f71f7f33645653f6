/* layernorm and its gradients. */
#include "ops/cpu/rows/column_sums.h"

#include <math.h>

/* y = (x - mean) rstd w + b, b may be NULL; stats = mean, rstd. The variance is of differences from the mean. */
NDP_INLINE void layernorm_row(ndp_dtype type, int64_t n, const void *x, const void *w, const void *b, void *y,
                              float *stats, float eps) {
    float sum = 0, squares = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++)
        sum += ndp_ld(x, type, i);
    float mean = sum / (float)n;
#pragma omp simd reduction(+ : squares)
    for (int64_t i = 0; i < n; i++)
        squares += (ndp_ld(x, type, i) - mean) * (ndp_ld(x, type, i) - mean);
    float rstd = 1.0f / sqrtf(squares / (float)n + eps);
    if (b)
        SIMD for (int64_t i = 0; i < n; i++)
            ndp_st(y, type, i, (ndp_ld(x, type, i) - mean) * rstd * ndp_ld(w, type, i) + ndp_ld(b, type, i));
    else
        SIMD for (int64_t i = 0; i < n; i++)
            ndp_st(y, type, i, (ndp_ld(x, type, i) - mean) * rstd * ndp_ld(w, type, i));
    stats[0] = mean, stats[1] = rstd;
}

void NDP_RANGE_KERNEL(layernorm)(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *x = &c->in[0];
    for (int64_t t = first; t < last; t++)
        NDP_BY_TYPE(x->dtype, layernorm_row, x->cols, ndp_at(x, t, 0), c->in[1].data, c->in[2].data,
                    ndp_at(&c->out[0], t, 0), ndp_at(&c->out[1], t, 0), (float)c->attr->eps);
}

/* With g = dy w and z = (x - mean) rstd: dx = acc + rstd (g - mean(g) - z mean(g z)) */
NDP_INLINE void layernorm_dx_row(ndp_dtype type, int64_t n, const void *dy, const void *x, const void *w,
                                 const float *stats, const void *acc, void *dx) {
    float mean = stats[0], rstd = stats[1], sum = 0, along = 0;
#pragma omp simd reduction(+ : sum, along)
    for (int64_t i = 0; i < n; i++) {
        float g = ndp_ld(dy, type, i) * ndp_ld(w, type, i);
        sum += g;
        along += g * ((ndp_ld(x, type, i) - mean) * rstd);
    }
    sum /= (float)n, along /= (float)n;
    SIMD for (int64_t i = 0; i < n; i++) {
        float g = ndp_ld(dy, type, i) * ndp_ld(w, type, i), z = (ndp_ld(x, type, i) - mean) * rstd;
        float d = rstd * (g - sum - z * along);
        ndp_st(dx, type, i, acc ? ndp_ld(acc, type, i) + d : d);
    }
}

void NDP_RANGE_KERNEL(layernorm_dx)(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *dy = &c->in[0], *acc = &c->in[4];
    for (int64_t t = first; t < last; t++)
        NDP_BY_TYPE(dy->dtype, layernorm_dx_row, dy->cols, ndp_at(dy, t, 0), ndp_at(&c->in[1], t, 0), c->in[2].data,
                    ndp_at(&c->in[3], t, 0), acc->data ? ndp_at(acc, t, 0) : NULL, ndp_at(&c->out[0], t, 0));
}

NDP_INLINE void layernorm_dw_block(ndp_dtype type, const ndp_op_call *c, int64_t start, int64_t n, float *total) {
    const ndp_view *dy = &c->in[0], *x = &c->in[1];
    for (int64_t t0 = 0, some = rows_at_once(c); t0 < dy->rows; t0 += some) {
        int64_t t1 = t0 + some < dy->rows ? t0 + some : dy->rows;
        float part[NDP_COLUMN_BLOCK] = {0};
        for (int64_t t = t0; t < t1; t++) {
            const void *d = ndp_at(dy, t, start), *v = ndp_at(x, t, start);
            const float *stats = ndp_at(&c->in[2], t, 0);
            float mean = stats[0], r = stats[1];
            SIMD for (int64_t i = 0; i < n; i++) part[i] += ndp_ld(d, type, i) * ((ndp_ld(v, type, i) - mean) * r);
        }
        add_into(NDP_F32, n, part, total);
    }
}

void NDP_RANGE_KERNEL(layernorm_dw)(const ndp_op_call *c, int64_t first, int64_t last) {
    for (int64_t b = first, start, n; b < last; b++) {
        float *g = gradient_block(c, b, &start, &n);
        NDP_BY_TYPE(c->in[0].dtype, layernorm_dw_block, c, start, n, g);
    }
}
