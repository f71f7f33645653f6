/* causal_conv, conv_silu and their gradients, by blocks of columns: a block's sums stay in registers over the taps. */
#include "ops/cpu/rows/column_sums.h"
#include "ops/row_pieces.h"

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

/* conv_silu ------------------------------------------------------------------------------------------------------ */

/* n columns of a call, from operand x on; taps[j] weighs the row j back. */
typedef struct silu_block {
    const ndp_view *x, *start, *ends;
    const ndp_op_attr *attr;
    int64_t at, n, reach, piece; /* piece: rows of one */
    float taps[NDP_MAX_TAPS][NDP_COLUMN_BLOCK];
} silu_block;

static void silu_block_load(silu_block *b, const ndp_op_call *c, const ndp_view *x, const ndp_view *ends, int64_t at,
                            int64_t n) {
    const ndp_view *w = x + 1;
    int64_t first = c->attr->first + at;
    b->x = x, b->start = x + 2, b->ends = ends, b->attr = c->attr, b->at = at, b->n = n, b->reach = w->cols;
    b->piece = x->rows / ndp_row_pieces_here(c->attr);
    for (int64_t j = 0; j < w->cols; j++)
        for (int64_t i = 0; i < n; i++)
            b->taps[j][i] = (float)ndp_view_get(w, first + i, w->cols - 1 - j);
}

/* sum += a b */
NDP_INLINE void add_tap(ndp_dtype type, int64_t n, const float *a, const void *b, float *sum) {
    SIMD for (int64_t i = 0; i < n; i++) sum[i] += a[i] * ndp_ld(b, type, i);
}

/* How many rows row t sees, itself and those before it. */
static int64_t rows_seen(const silu_block *b, int64_t t) {
    int64_t start = b->ends->data ? ((const int32_t *)b->start->data)[t * b->start->ld] : start_of(b->start, t);
    int64_t seen = t - start + 1;
    return seen < 0 ? 0 : seen < b->reach ? seen : b->reach;
}

/* The row j rows before row t: of x, or of what stands before its piece. */
static const void *row_back(const silu_block *b, int64_t t, int64_t j) {
    int64_t in_piece = b->ends->data ? t % b->piece : t;
    return j <= in_piece
               ? ndp_at(b->x, t - j, b->at)
               : ndp_at(b->ends, ndp_row_before_piece(b->attr, b->ends->rows, t / b->piece, j - in_piece), b->at);
}

/* What silu is of in row t. */
NDP_INLINE void silu_of(ndp_dtype type, const silu_block *b, int64_t t, float *u) {
    memset(u, 0, NDP_COLUMN_BLOCK * sizeof *u);
    for (int64_t j = 0, seen = rows_seen(b, t); j < seen; j++)
        add_tap(type, b->n, b->taps[j], row_back(b, t, j), u);
}

/* The gradient of that. */
NDP_INLINE void silu_du(ndp_dtype type, const silu_block *b, const ndp_view *dy, int64_t t, float *du) {
    const void *d = ndp_at(dy, t, b->at);
    silu_of(type, b, t, du);
    SIMD for (int64_t i = 0; i < b->n; i++) {
        float u = du[i], s = ndp_vsigmoidf(u);
        du[i] = ndp_ld(d, type, i) * s * (1.0f + u * (1.0f - s));
    }
}

NDP_INLINE void silu_rows(ndp_dtype type, const ndp_op_call *c, const silu_block *b, int64_t first, int64_t last) {
    for (int64_t t = first; t < last; t++) {
        float u[NDP_COLUMN_BLOCK];
        void *y = ndp_at(&c->out[0], t, b->at);
        silu_of(type, b, t, u);
        SIMD for (int64_t i = 0; i < b->n; i++) ndp_st(y, type, i, u[i] * ndp_vsigmoidf(u[i]));
    }
}

void NDP_RANGE_KERNEL(conv_silu)(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *x = &c->in[0];
    silu_block b;
    for (int64_t at = 0; at < x->cols; at += NDP_COLUMN_BLOCK) {
        silu_block_load(&b, c, x, &c->in[3], at, width(x, at));
        NDP_BY_TYPE(x->dtype, silu_rows, c, &b, first, last);
    }
}

/* Row s of dx is made once the gradients of all rows that see it are there. */
NDP_INLINE void silu_dx_rows(ndp_dtype type, const ndp_op_call *c, const silu_block *b, int64_t first, int64_t last) {
    const ndp_view *dy = &c->in[0], *acc = &c->in[4];
    float du[NDP_MAX_TAPS][NDP_COLUMN_BLOCK];
    for (int64_t s = first, t = first; s < last; s++) {
        float sum[NDP_COLUMN_BLOCK] = {0};
        int64_t end = (s / b->piece + 1) * b->piece;
        for (; t < end && t < s + b->reach; t++)
            silu_du(type, b, dy, t, du[t % NDP_MAX_TAPS]);
        if (acc->data)
            add_into(type, b->n, ndp_at(acc, s, b->at), sum);
        for (int64_t j = 0; j < b->reach && s + j < end; j++)
            if (rows_seen(b, s + j) > j)
                add_product(NDP_F32, b->n, b->taps[j], du[(s + j) % NDP_MAX_TAPS], sum);
        store(c->out[0].dtype, b->n, sum, ndp_at(&c->out[0], s, b->at));
    }
}

void NDP_RANGE_KERNEL(conv_silu_dx)(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *x = &c->in[1];
    silu_block b;
    for (int64_t at = 0; at < x->cols; at += NDP_COLUMN_BLOCK) {
        silu_block_load(&b, c, x, &c->in[5], at, width(x, at));
        NDP_BY_TYPE(x->dtype, silu_dx_rows, c, &b, first, last);
    }
}

/* Sums of the taps of a block over rows [t0, t1). */
NDP_INLINE void silu_dw_part(ndp_dtype type, const ndp_op_call *c, const silu_block *b, int64_t t0, int64_t t1,
                             float part[][NDP_COLUMN_BLOCK]) {
    for (int64_t t = t0; t < t1; t++) {
        float du[NDP_COLUMN_BLOCK];
        silu_du(type, b, &c->in[0], t, du);
        for (int64_t j = 0, seen = rows_seen(b, t); j < seen; j++)
            add_tap(type, b->n, du, row_back(b, t, j), part[j]);
    }
}

/* Rows of taps whose columns are not here. */
static void no_dw(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *dw = &c->out[0];
    for (int64_t row = first; row < last && !c->attr->accumulate; row++)
        memset(ndp_at(dw, row, 0), 0, (size_t)dw->cols * sizeof(float));
}

/* Rows of dw, from attr.first on, are columns of x. */
void NDP_RANGE_KERNEL(conv_silu_dw)(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *x = &c->in[1], *dw = &c->out[0];
    int64_t low = c->attr->first, begin = first > low ? first : low, end = last < low + x->cols ? last : low + x->cols;
    begin = begin < last ? begin : last, end = end > begin ? end : begin;
    no_dw(c, first, begin);
    no_dw(c, end, last);
    silu_block b;
    for (int64_t at = begin; at < end; at += NDP_COLUMN_BLOCK) {
        float total[NDP_MAX_TAPS][NDP_COLUMN_BLOCK] = {{0}};
        silu_block_load(&b, c, x, &c->in[4], at - low, end - at < NDP_COLUMN_BLOCK ? end - at : NDP_COLUMN_BLOCK);
        for (int64_t t0 = 0, some = rows_at_once(c); t0 < x->rows; t0 += some) {
            float part[NDP_MAX_TAPS][NDP_COLUMN_BLOCK] = {{0}};
            NDP_BY_TYPE(x->dtype, silu_dw_part, c, &b, t0, t0 + some < x->rows ? t0 + some : x->rows, part);
            for (int64_t j = 0; j < b.reach; j++)
                add_into(NDP_F32, b.n, part[j], total[j]);
        }
        for (int64_t i = 0; i < b.n; i++)
            for (int64_t j = 0; j < b.reach; j++) {
                float *to = (float *)ndp_at(dw, at + i, b.reach - 1 - j);
                *to = total[j][i] + (c->attr->accumulate ? *to : 0);
            }
    }
}

/* ---- between pieces ---- */

/* What piece `k` here gives to row `end` of the ends, once for each of its rows that has a tap there. */
NDP_INLINE void silu_dends_row(ndp_dtype type, const ndp_op_call *c, const silu_block *b, int64_t k, int64_t end,
                               float *sum) {
    int64_t before = ndp_row_piece_number(c->attr, k) * (b->ends->rows / ndp_row_pieces(c->attr));
    for (int64_t back = 1; back < b->reach && back <= before; back++)
        for (int64_t i = 0;
             ndp_row_before_piece(c->attr, b->ends->rows, k, back) == end && i < b->piece && i + back < b->reach; i++) {
            float du[NDP_COLUMN_BLOCK];
            if (rows_seen(b, k * b->piece + i) <= i + back)
                continue;
            silu_du(type, b, &c->in[0], k * b->piece + i, du);
            add_product(NDP_F32, b->n, b->taps[i + back], du, sum);
        }
}

void NDP_RANGE_KERNEL(conv_silu_dends)(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *x = &c->in[1], *dends = &c->out[0];
    silu_block b;
    for (int64_t at = 0; at < x->cols; at += NDP_COLUMN_BLOCK) {
        silu_block_load(&b, c, x, &c->in[4], at, width(x, at));
        for (int64_t end = first; end < last; end++) {
            float sum[NDP_COLUMN_BLOCK] = {0};
            for (int64_t k = 0; k < ndp_row_pieces_here(c->attr); k++)
                NDP_BY_TYPE(x->dtype, silu_dends_row, c, &b, k, end, sum);
            memcpy(ndp_at(dends, end, at), sum, (size_t)b.n * sizeof *sum);
        }
    }
}
