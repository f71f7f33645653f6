/* newton_schulz, in fp64. */
#include "ops/newton_schulz.h"
#include "ops/ref/ref_gemm.h"
#include "ops/ref/ref_kernels.h"

static ndp_view dense(double *data, int64_t rows, int64_t cols) { return (ndp_view){data, NDP_F64, rows, cols, cols}; }

/* X, X', A and b A + c A^2, and what a product needs. */
static size_t scratch(const ndp_op_call *c) {
    const ndp_view *x = &c->in[0];
    int64_t n = x->rows * x->cols, small = ndp_newton_schulz_smaller(x), large = x->rows + x->cols - small;
    return (size_t)(2 * n + 2 * small * small + 2 * n + large) * sizeof(double);
}

static void copy_scaled(double *to, const double *from, int64_t n, double factor) {
    for (int64_t i = 0; i < n; i++)
        to[i] = factor * from[i];
}

static void step(const ndp_view *x, const ndp_view *next, ndp_polynomial of, double scale, double *scratch) {
    int64_t small = ndp_newton_schulz_smaller(x), n = x->rows * x->cols;
    bool tall = x->rows > x->cols;
    ndp_view a = dense(scratch, small, small), poly = dense(scratch + small * small, small, small);
    double *rest = scratch + 2 * small * small, *p = poly.data;
    ndp_ref_gemm(x, tall, x, !tall, &a, false, rest);
    ndp_ref_gemm(&a, false, &a, false, &poly, false, rest);
    for (int64_t i = 0; i < small * small; i++)
        p[i] = scale * (of.b * ((double *)a.data)[i] + of.c * p[i]);
    copy_scaled(next->data, x->data, n, scale * of.a);
    ndp_ref_gemm(tall ? x : &poly, false, tall ? &poly : x, false, next, true, rest);
}

static ndp_status run(const ndp_op_call *c) {
    const ndp_view *io = &c->out[0];
    int64_t n = io->rows * io->cols;
    double *data = c->scratch, squares = 0;
    ndp_view x = dense(data, io->rows, io->cols), next = dense(data + n, io->rows, io->cols);
    for (int64_t i = 0; i < n; i++) {
        data[i] = ndp_view_get(io, i / io->cols, i % io->cols);
        squares += data[i] * data[i];
    }
    copy_scaled(data, data, n, ndp_newton_schulz_start(squares));
    for (int k = 0; k < NDP_NEWTON_SCHULZ_STEPS; k++) {
        step(&x, &next, ndp_newton_schulz_polynomial(c->attr, k), ndp_newton_schulz_scale(c->attr, k, io),
             data + 2 * n);
        ndp_view swap = x;
        x = next, next = swap;
    }
    for (int64_t i = 0; i < n; i++)
        ndp_view_set(io, i / io->cols, i % io->cols, ((double *)x.data)[i]);
    return NDP_OK;
}

const ndp_kernel ndp_ref_newton_schulz = {.run = run, .scratch = scratch};
