/* The kernels of rows.h as plain C, for one instruction set: included by rows_generic.c and rows_avx512.c, which name
 * the table. Pointers of different operands never overlap, save where an op says that it works in place. */
#include "ops/cpu/rows.h"
#include "ops/cpu/vector.h"

#include <math.h>

#define SIMD _Pragma("omp simd")

#include "ops/cpu/rows_parts.h"
#include "ops/cpu/rows_softmax.h"

/* The row of the table that row t names; -1: none. */
static int64_t named_row(const ndp_op_call *c, const ndp_view *table, int64_t t) {
    const ndp_view *ids = &c->in[0];
    int64_t row = ((const int32_t *)ids->data)[t * ids->ld] - c->attr->first;
    return row >= 0 && row < table->rows ? row : -1;
}

static void embedding(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *table = &c->in[1];
    size_t bytes = (size_t)c->out[0].cols * ndp_dtype_size(c->out[0].dtype);
    for (int64_t t = first; t < last; t++) {
        int64_t row = named_row(c, table, t);
        if (row >= 0)
            memcpy(ndp_at(&c->out[0], t, 0), ndp_at(table, row, 0), bytes);
        else
            memset(ndp_at(&c->out[0], t, 0), 0, bytes);
    }
}

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

static void rmsnorm(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *x = &c->in[0];
    int64_t n = c->in[1].cols;
    for (int64_t t = first; t < last; t++)
        for (int64_t g = 0; g < x->cols / n; g++)
            NDP_BY_TYPE(x->dtype, norm_row, n, ndp_at(x, t, g * n), c->in[1].data, ndp_at(&c->out[0], t, g * n),
                        ndp_at(&c->out[1], t, g), c);
}

NDP_INLINE void add_row(ndp_dtype from, ndp_dtype to, int64_t n, const void *a, const void *b, void *s) {
    SIMD for (int64_t i = 0; i < n; i++) ndp_st(s, to, i, ndp_ld(a, from, i) + ndp_ld(b, from, i));
}

static void add(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *a = &c->in[0], *s = &c->out[0];
    for (int64_t t = first; t < last; t++)
        NDP_BY_TYPES(a->dtype, s->dtype, add_row, a->cols, ndp_at(a, t, 0), ndp_at(&c->in[1], t, 0), ndp_at(s, t, 0));
}

static void add_rmsnorm(const ndp_op_call *c, int64_t first, int64_t last) {
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

static void rmsnorm_dx(const ndp_op_call *c, int64_t first, int64_t last) {
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

/* One head: (a, b) -> (a cos - b sin, b cos + a sin), a and b its halves. */
NDP_INLINE void rotate(ndp_dtype type, int64_t half, void *a, void *b, const float *cosine, const float *sine,
                       float sign) {
    SIMD for (int64_t i = 0; i < half; i++) {
        float u = ndp_ld(a, type, i), v = ndp_ld(b, type, i), s = sign * sine[i];
        ndp_st(a, type, i, u * cosine[i] - v * s);
        ndp_st(b, type, i, v * cosine[i] + u * s);
    }
}

static void rope(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *x = &c->in[0], *pos = &c->in[1], *table = &c->in[2];
    int64_t half = table->cols / 2, heads = (int64_t)c->attr->heads + c->attr->kv_heads, d = c->attr->head_dim;
    for (int64_t t = first; t < last; t++) {
        const float *angle = ndp_at(table, ((const int32_t *)pos->data)[t * pos->ld], 0);
        for (int64_t h = 0; h < heads; h++)
            NDP_BY_TYPE(x->dtype, rotate, half, ndp_at(x, t, h * d), ndp_at(x, t, h * d + half), angle, angle + half,
                        c->attr->inverse ? -1.0f : 1.0f);
    }
}

NDP_INLINE float sigmoid(float x) { return 1.0f / (1.0f + ndp_vexpf(-x)); }

NDP_INLINE void swiglu_row(ndp_dtype type, int64_t n, const void *gate, const void *up, void *a) {
    SIMD for (int64_t i = 0; i < n; i++) {
        float g = ndp_ld(gate, type, i);
        ndp_st(a, type, i, g * sigmoid(g) * ndp_ld(up, type, i));
    }
}

static void swiglu(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *gu = &c->in[0], *a = &c->out[0];
    for (int64_t t = first; t < last; t++)
        NDP_BY_TYPE(gu->dtype, swiglu_row, a->cols, ndp_at(gu, t, 0), ndp_at(gu, t, a->cols), ndp_at(a, t, 0));
}

NDP_INLINE void swiglu_bwd_row(ndp_dtype type, int64_t n, const void *da, const void *gate, const void *up, void *dgate,
                               void *dup) {
    SIMD for (int64_t i = 0; i < n; i++) {
        float g = ndp_ld(gate, type, i), d = ndp_ld(da, type, i), u = ndp_ld(up, type, i), s = sigmoid(g);
        ndp_st(dgate, type, i, d * u * s * (1.0f + g * (1.0f - s)));
        ndp_st(dup, type, i, d * g * s);
    }
}

static void swiglu_bwd(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *da = &c->in[0], *gu = &c->in[1], *dgu = &c->out[0];
    for (int64_t t = first; t < last; t++)
        NDP_BY_TYPE(da->dtype, swiglu_bwd_row, da->cols, ndp_at(da, t, 0), ndp_at(gu, t, 0), ndp_at(gu, t, da->cols),
                    ndp_at(dgu, t, 0), ndp_at(dgu, t, da->cols));
}

#include "ops/cpu/rows_gelu.h"
#include "ops/cpu/rows_layernorm.h"
#include "ops/cpu/rows_norm_by.h"

/* Sums over rows, by blocks of columns ------------------------------------------------------------------------------
 */

NDP_INLINE void add_into(ndp_dtype type, int64_t n, const void *x, float *sum) {
    SIMD for (int64_t i = 0; i < n; i++) sum[i] += ndp_ld(x, type, i);
}

static void embedding_dw(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *dx = &c->in[1], *dw = &c->out[0];
    int64_t start = first * NDP_COLUMN_BLOCK;
    int64_t n = (last * NDP_COLUMN_BLOCK < dx->cols ? last * NDP_COLUMN_BLOCK : dx->cols) - start;
    if (!c->attr->accumulate)
        for (int64_t r = 0; r < dw->rows; r++)
            memset(ndp_at(dw, r, start), 0, (size_t)n * 4);
    for (int64_t i = 0; i < dx->rows; i++) {
        int64_t t = ndp_split_place(c->exec) ? dx->rows - 1 - i : i, row = named_row(c, dw, t);
        if (row >= 0)
            NDP_BY_TYPE(dx->dtype, add_into, n, ndp_at(dx, t, start), (float *)ndp_at(dw, row, start));
    }
}

/* sum (+)= sums of rows of one block of columns, so many at a time so that fp32 sums stay short. */
static int64_t rows_at_once(const ndp_op_call *c) {
    int place = ndp_split_place(c->exec);
    return place ? 8 * place : 64;
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

/* Column block number `b` of the gradient: its start and width; cleared when not accumulating. */
static float *gradient_block(const ndp_op_call *c, int64_t b, int64_t *start, int64_t *n) {
    const ndp_view *dw = &c->out[0];
    *start = b * NDP_COLUMN_BLOCK;
    *n = dw->cols - *start < NDP_COLUMN_BLOCK ? dw->cols - *start : NDP_COLUMN_BLOCK;
    float *g = ndp_at(dw, 0, *start);
    if (!c->attr->accumulate)
        memset(g, 0, (size_t)*n * 4);
    return g;
}

static void layernorm_dw(const ndp_op_call *c, int64_t first, int64_t last) {
    for (int64_t b = first, start, n; b < last; b++) {
        float *g = gradient_block(c, b, &start, &n);
        NDP_BY_TYPE(c->in[0].dtype, layernorm_dw_block, c, start, n, g);
    }
}

static void rmsnorm_dw(const ndp_op_call *c, int64_t first, int64_t last) {
    for (int64_t b = first, start, n; b < last; b++) {
        float *g = gradient_block(c, b, &start, &n);
        NDP_BY_TYPE(c->in[0].dtype, norm_dw_block, c, start, n, g);
    }
}

static void linear_db(const ndp_op_call *c, int64_t first, int64_t last) {
    for (int64_t b = first, start, n; b < last; b++) {
        float *g = gradient_block(c, b, &start, &n);
        NDP_BY_TYPE(c->in[0].dtype, sum_block, c, start, n, g);
    }
}

const ndp_row_kernels NDP_ROWS_TABLE = {
#define X(name) .name = name,
    NDP_RANGE_KERNELS(X)
#undef X
};
