/* causal_conv and its gradients, by blocks of columns: a block's sums stay in registers over the taps. */
#include "ops/cpu/rows/column_sums.h"

static int64_t start_of(const ndp_view *start, int64_t t) {
    int64_t first = ((const int32_t *)start->data)[t * start->ld];
    return first > 0 ? first : 0;
}

static int64_t width(const ndp_view *v, int64_t column) {
    return v->cols - column < NDP_COLUMN_BLOCK ? v->cols - column : NDP_COLUMN_BLOCK;
}

/* sum += a b */
NDP_INLINE void add_product(ndp_dtype type, int64_t n, const void *a, const void *b, float *sum) {
    SIMD for (int64_t i = 0; i < n; i++) sum[i] += ndp_ld(a, type, i) * ndp_ld(b, type, i);
}

NDP_INLINE void store(ndp_dtype type, int64_t n, const float *sum, void *y) {
    SIMD for (int64_t i = 0; i < n; i++) ndp_st(y, type, i, sum[i]);
}

NDP_INLINE void conv_row(ndp_dtype type, const ndp_op_call *c, int64_t t) {
    const ndp_view *x = &c->in[0], *w = &c->in[1];
    int64_t first = start_of(&c->in[2], t);
    for (int64_t at = 0; at < x->cols; at += NDP_COLUMN_BLOCK) {
        float sum[NDP_COLUMN_BLOCK] = {0};
        int64_t n = width(x, at);
        for (int64_t j = 0; j < w->rows && t - j >= first; j++)
            add_product(type, n, ndp_at(w, j, at), ndp_at(x, t - j, at), sum);
        store(type, n, sum, ndp_at(&c->out[0], t, at));
    }
}

void NDP_RANGE_KERNEL(causal_conv)(const ndp_op_call *c, int64_t first, int64_t last) {
    for (int64_t t = first; t < last; t++)
        NDP_BY_TYPE(c->in[0].dtype, conv_row, c, t);
}

NDP_INLINE void conv_dx_row(ndp_dtype type, const ndp_op_call *c, int64_t s) {
    const ndp_view *dy = &c->in[0], *w = &c->in[1], *acc = &c->in[3];
    for (int64_t at = 0; at < dy->cols; at += NDP_COLUMN_BLOCK) {
        float sum[NDP_COLUMN_BLOCK] = {0};
        int64_t n = width(dy, at);
        if (acc->data)
            add_into(type, n, ndp_at(acc, s, at), sum);
        for (int64_t j = 0; j < w->rows && s + j < dy->rows; j++)
            if (start_of(&c->in[2], s + j) <= s)
                add_product(type, n, ndp_at(w, j, at), ndp_at(dy, s + j, at), sum);
        store(type, n, sum, ndp_at(&c->out[0], s, at));
    }
}

void NDP_RANGE_KERNEL(causal_conv_dx)(const ndp_op_call *c, int64_t first, int64_t last) {
    for (int64_t s = first; s < last; s++)
        NDP_BY_TYPE(c->in[0].dtype, conv_dx_row, c, s);
}

/* One tap of one block of columns. */
NDP_INLINE void conv_dw_block(ndp_dtype type, const ndp_op_call *c, int64_t j, int64_t at, int64_t n, float *total) {
    const ndp_view *dy = &c->in[0], *x = &c->in[1];
    for (int64_t t0 = 0, some = rows_at_once(c); t0 < dy->rows; t0 += some) {
        int64_t t1 = t0 + some < dy->rows ? t0 + some : dy->rows;
        float part[NDP_COLUMN_BLOCK] = {0};
        for (int64_t t = t0 > j ? t0 : j; t < t1; t++)
            if (start_of(&c->in[2], t) <= t - j)
                add_product(type, n, ndp_at(dy, t, at), ndp_at(x, t - j, at), part);
        add_into(NDP_F32, n, part, total);
    }
}

void NDP_RANGE_KERNEL(causal_conv_dw)(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *dw = &c->out[0];
    for (int64_t b = first; b < last; b++)
        for (int64_t j = 0, at = b * NDP_COLUMN_BLOCK, n = width(dw, at); j < dw->rows; j++) {
            float *total = ndp_at(dw, j, at);
            if (!c->attr->accumulate)
                memset(total, 0, (size_t)n * sizeof *total);
            NDP_BY_TYPE(c->in[0].dtype, conv_dw_block, c, j, at, n, total);
        }
}
