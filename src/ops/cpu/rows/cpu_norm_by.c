/* mean_squares, norm_by and their gradients. */
#include "ops/cpu/rows/range_kernel.h"

#include <math.h>

NDP_INLINE void squares_row(ndp_dtype type, int64_t n, const void *x, float scale, float *m) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++)
        sum += ndp_ld(x, type, i) * ndp_ld(x, type, i);
    *m = sum * scale;
}

void NDP_RANGE_KERNEL(mean_squares)(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *x = &c->in[0];
    for (int64_t t = first; t < last; t++)
        NDP_BY_TYPE(x->dtype, squares_row, x->cols, ndp_at(x, t, 0), (float)c->attr->scale, ndp_at(&c->out[0], t, 0));
}

NDP_INLINE void squares_dx_row(ndp_dtype from, ndp_dtype type, int64_t n, const void *x, float by, const void *acc,
                               void *dx) {
    SIMD for (int64_t i = 0; i < n; i++) {
        float d = by * ndp_ld(x, type, i);
        ndp_st(dx, type, i, acc ? ndp_ld(acc, from, i) + d : d);
    }
}

void NDP_RANGE_KERNEL(mean_squares_dx)(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *x = &c->in[1], *acc = &c->in[2];
    for (int64_t t = first; t < last; t++)
        NDP_BY_TYPES(acc->data ? acc->dtype : x->dtype, x->dtype, squares_dx_row, x->cols, ndp_at(x, t, 0),
                     2 * (float)c->attr->scale * *(const float *)ndp_at(&c->in[0], t, 0),
                     acc->data ? ndp_at(acc, t, 0) : NULL, ndp_at(&c->out[0], t, 0));
}

NDP_INLINE void norm_by_row(ndp_dtype type, int64_t n, const void *x, const void *w, float r, float offset, void *y) {
    SIMD for (int64_t i = 0; i < n; i++) ndp_st(y, type, i, ndp_ld(x, type, i) * r * (ndp_ld(w, type, i) + offset));
}

void NDP_RANGE_KERNEL(norm_by)(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *x = &c->in[0];
    for (int64_t t = first; t < last; t++) {
        float r = 1.0f / sqrtf(*(const float *)ndp_at(&c->in[2], t, 0) + (float)c->attr->eps);
        *(float *)ndp_at(&c->out[1], t, 0) = r;
        NDP_BY_TYPE(x->dtype, norm_by_row, x->cols, ndp_at(x, t, 0), c->in[1].data, r, (float)c->attr->unit_offset,
                    ndp_at(&c->out[0], t, 0));
    }
}

/* sum(dy w x); dx, in fp32, may be NULL. */
NDP_INLINE void norm_by_dx_row(ndp_dtype type, int64_t n, const void *dy, const void *x, const void *w, float r,
                               float offset, float *dx, float *along) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++)
        sum += ndp_ld(dy, type, i) * (ndp_ld(w, type, i) + offset) * ndp_ld(x, type, i);
    *along = sum;
    if (dx)
        SIMD for (int64_t i = 0; i < n; i++) dx[i] = ndp_ld(dy, type, i) * (ndp_ld(w, type, i) + offset) * r;
}

void NDP_RANGE_KERNEL(norm_by_dx)(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *dy = &c->in[0], *dx = &c->out[0], *dm = &c->out[1];
    for (int64_t t = first; t < last; t++) {
        float r = *(const float *)ndp_at(&c->in[3], t, 0), along;
        NDP_BY_TYPE(dy->dtype, norm_by_dx_row, dy->cols, ndp_at(dy, t, 0), ndp_at(&c->in[1], t, 0), c->in[2].data, r,
                    (float)c->attr->unit_offset, dx->data ? ndp_at(dx, t, 0) : NULL, &along);
        if (dm->data)
            *(float *)ndp_at(dm, t, 0) = -0.5f * r * r * r * along;
    }
}
