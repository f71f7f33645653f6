/* take_rows, give_rows, weigh_rows, and gradients of weights. */
#include "ops/cpu/rows/row_parts.h"

/* Columns at a time. */
enum { BLOCK = 256 };

/* Element (t, j) of a matrix of integers, or of fp32. */
static int64_t int_at(const ndp_view *v, int64_t t, int64_t j) { return ((const int32_t *)v->data)[t * v->ld + j]; }
static float float_at(const ndp_view *v, int64_t t, int64_t j) { return ((const float *)v->data)[t * v->ld + j]; }

void NDP_RANGE_KERNEL(take_rows)(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *x = &c->in[0], *weights = &c->in[3], *y = &c->out[0];
    int64_t k = c->in[2].cols;
    for (int64_t n = first; n < last; n++) {
        int64_t from = int_at(&c->in[1], n, 0);
        if (from < 0)
            memset(ndp_at(y, n, 0), 0, (size_t)y->cols * ndp_dtype_size(y->dtype));
        else if (weights->data)
            NDP_BY_TYPES(x->dtype, y->dtype, scale_into, y->cols, ndp_at(x, from / k, 0),
                         float_at(weights, from / k, from % k), ndp_at(y, n, 0));
        else
            copy_piece(x, from / k, 0, y, n, 0, y->cols);
    }
}

/* sum += by y */
NDP_INLINE void add_scaled(ndp_dtype from, int64_t n, const void *y, float by, float *sum) {
    SIMD for (int64_t i = 0; i < n; i++) sum[i] += by * ndp_ld(y, from, i);
}

/* Columns start .. start + n - 1 of row t. */
static void give_block(const ndp_op_call *c, int64_t t, int64_t start, int64_t n) {
    const ndp_view *y = &c->in[0], *places = &c->in[2], *weights = &c->in[3], *acc = &c->in[4], *x = &c->out[0];
    const ndp_view sum = {(float[BLOCK]){0}, NDP_F32, 1, BLOCK, BLOCK};
    memset(sum.data, 0, sizeof(float[BLOCK]));
    for (int64_t j = 0; j < places->cols; j++) {
        int64_t place = int_at(places, t, j);
        if (place >= 0)
            NDP_BY_TYPE(y->dtype, add_scaled, n, ndp_at(y, place, start),
                        weights->data ? float_at(weights, t, j) : 1.0f, sum.data);
    }
    if (acc->data)
        NDP_BY_TYPES(acc->dtype, NDP_F32, add_to_row, n, ndp_at(acc, t, start), sum.data);
    copy_piece(&sum, 0, 0, x, t, start, n);
}

void NDP_RANGE_KERNEL(give_rows)(const ndp_op_call *c, int64_t first, int64_t last) {
    int64_t cols = c->out[0].cols;
    for (int64_t t = first; t < last; t++)
        for (int64_t start = 0; start < cols; start += BLOCK)
            give_block(c, t, start, cols - start < BLOCK ? cols - start : BLOCK);
}

void NDP_RANGE_KERNEL(give_rows_dw)(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *dx = &c->in[0], *y = &c->in[1], *places = &c->in[2];
    for (int64_t t = first; t < last; t++)
        for (int64_t j = 0; j < places->cols; j++) {
            int64_t place = int_at(places, t, j);
            float *dw = ndp_at(&c->out[0], t, j);
            if (place < 0)
                *dw = 0;
            else
                NDP_BY_TYPES(dx->dtype, y->dtype, dot_row, dx->cols, ndp_at(dx, t, 0), ndp_at(y, place, 0), dw);
        }
}

void NDP_RANGE_KERNEL(weigh_rows)(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *x = &c->out[0];
    int64_t k = c->in[2].cols;
    for (int64_t n = first; n < last; n++) {
        int64_t from = int_at(&c->in[1], n, 0);
        if (from < 0)
            memset(ndp_at(x, n, 0), 0, (size_t)x->cols * ndp_dtype_size(x->dtype));
        else
            NDP_BY_TYPES(x->dtype, x->dtype, scale_into, x->cols, ndp_at(&c->in[0], n, 0),
                         float_at(&c->in[3], from / k, from % k), ndp_at(x, n, 0));
    }
}

void NDP_RANGE_KERNEL(weigh_rows_dw)(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *dy = &c->in[0], *y = &c->in[1], *places = &c->in[2];
    for (int64_t t = first; t < last; t++)
        for (int64_t j = 0; j < places->cols; j++) {
            int64_t place = int_at(places, t, j);
            float weight = float_at(&c->in[3], t, j), *dw = ndp_at(&c->out[0], t, j);
            *dw = 0;
            if (place < 0 || weight == 0)
                continue;
            NDP_BY_TYPES(dy->dtype, y->dtype, dot_row, dy->cols, ndp_at(dy, place, 0), ndp_at(y, place, 0), dw);
            *dw /= weight;
        }
}
