/* heads_split, heads_merge; rows at the ends of pieces. */
#include "ops/cpu/rows/row_parts.h"
#include "ops/heads.h"

void NDP_RANGE_KERNEL(heads_split)(const ndp_op_call *c, int64_t first, int64_t last) {
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

void NDP_RANGE_KERNEL(heads_merge)(const ndp_op_call *c, int64_t first, int64_t last) {
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

void NDP_RANGE_KERNEL(piece_ends)(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *x = &c->in[0];
    int64_t piece = x->rows / c->attr->parts, n = c->attr->ends;
    for (int64_t r = first; r < last; r++)
        copy_piece(x, (r / n + 1) * piece - n + r % n, 0, &c->out[0], r, 0, x->cols);
}

/* The sum of the two in fp32, rounded once. */
NDP_INLINE void add_rows_into(ndp_dtype from, ndp_dtype to, int64_t n, const void *dy, const void *earlier, void *dx) {
    SIMD for (int64_t i = 0; i < n; i++) ndp_st(dx, to, i, ndp_ld(earlier, to, i) + ndp_ld(dy, from, i));
}

void NDP_RANGE_KERNEL(piece_ends_dx)(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *dy = &c->in[0], *earlier = &c->in[2], *dx = &c->out[0];
    int64_t piece = dx->rows / c->attr->parts, n = c->attr->ends;
    for (int64_t t = first; t < last; t++) {
        int64_t at = t % piece - piece + n, row = t / piece * n + at;
        if (at >= 0 && earlier->data)
            NDP_BY_TYPES(dy->dtype, dx->dtype, add_rows_into, dx->cols, ndp_at(dy, row, 0), ndp_at(earlier, t, 0),
                         ndp_at(dx, t, 0));
        else if (at >= 0)
            copy_piece(dy, row, 0, dx, t, 0, dx->cols);
        else if (!earlier->data)
            memset(ndp_at(dx, t, 0), 0, (size_t)dx->cols * ndp_dtype_size(dx->dtype));
        else if (earlier->data != dx->data)
            copy_piece(earlier, t, 0, dx, t, 0, dx->cols);
    }
}
