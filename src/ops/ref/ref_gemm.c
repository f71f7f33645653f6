/* The product of ref: both operands are copied to dense fp64, and row i of C is summed in `sum` over k in order, from
 * C's own row when it accumulates. ref_linear.c and ref_xent.c call it. */
#include "ops/ref/ref_gemm.h"

static void load_dense(const ndp_view *v, bool transposed, double *out) {
    for (int64_t r = 0; r < v->rows; r++)
        for (int64_t c = 0; c < v->cols; c++)
            out[transposed ? c * v->rows + r : r * v->cols + c] = ndp_view_get(v, r, c);
}

size_t ndp_ref_gemm_scratch(const ndp_view *a, const ndp_view *b, const ndp_view *c) {
    return (size_t)(a->rows * a->cols + b->rows * b->cols + c->cols) * sizeof(double);
}

void ndp_ref_gemm(const ndp_view *a, bool trans_a, const ndp_view *b, bool trans_b, const ndp_view *c, bool accumulate,
                  void *scratch) {
    int64_t n = c->cols, k = trans_a ? a->rows : a->cols;
    double *da = scratch, *db = da + a->rows * a->cols, *sum = db + b->rows * b->cols;
    load_dense(a, trans_a, da);
    load_dense(b, trans_b, db);
    for (int64_t i = 0; i < c->rows; i++) {
        for (int64_t j = 0; j < n; j++)
            sum[j] = accumulate ? ndp_view_get(c, i, j) : 0.0;
        for (int64_t l = 0; l < k; l++)
            for (int64_t j = 0; j < n; j++)
                sum[j] += da[i * k + l] * db[l * n + j];
        for (int64_t j = 0; j < n; j++)
            ndp_view_set(c, i, j, sum[j]);
    }
}
