/* newton_schulz: three products a step, to which the library adds the other terms. Two matrices take turns: x, and one
 * in scratch memory. */
#include "ops/cuda/cuda_kernel.cuh"
#include "ops/cuda/cuda_kernels.hpp"
#include "ops/cuda/cuda_product.hpp"

extern "C" {
#include "ops/newton_schulz.h"
}

#include <algorithm>

enum { THREADS = 256 };

/* ---- the first pass: x / |x| ---- */

static __device__ __forceinline__ double warp_sum(double x) {
    for (int with = NDP_WARP / 2; with > 0; with /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, with);
    return x;
}

/* A row of all elements. parts[i]: the sum of the squares that block i reads; in fp64, since squares of small numbers
 * are 0 in fp32. */
static __global__ void __launch_bounds__(THREADS) ndp_squares_kernel(ndp_view x, double *parts) {
    double *room = (double *)ndp_shared_bytes, sum = 0;
    for (int64_t c = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * NDP_LANES; c < x.cols;
         c += (int64_t)gridDim.x * blockDim.x * NDP_LANES) {
        ndp_lanes v = ndp_get8(x, 0, c);
        for (int k = 0; k < NDP_LANES; k++)
            sum += (double)v.x[k] * (double)v.x[k];
    }
    int lane = threadIdx.x % NDP_WARP;
    sum = warp_sum(sum);
    if (lane == 0)
        room[threadIdx.x / NDP_WARP] = sum;
    __syncthreads();
    sum = warp_sum(lane < (int)blockDim.x / NDP_WARP ? room[lane] : 0);
    if (threadIdx.x == 0)
        parts[blockIdx.x] = sum;
}

/* to = x times ndp_newton_schulz_start(the sum of the parts), which every warp adds up. */
static __global__ void __launch_bounds__(THREADS)
    ndp_start_kernel(ndp_view x, ndp_view to, const double *parts, int n) {
    double squares = 0;
    for (int i = threadIdx.x % NDP_WARP; i < n; i += NDP_WARP)
        squares += parts[i];
    float factor = (float)(1 / fmax(sqrt(warp_sum(squares)), 1e-7));
    int64_t c = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * NDP_LANES;
    if (c >= x.cols)
        return;
    ndp_lanes v = ndp_get8(x, 0, c);
    for (int k = 0; k < NDP_LANES; k++)
        v.x[k] *= factor;
    ndp_set8(to, 0, c, v);
}

/* ---- the steps ---- */

struct matrices {
    ndp_view x, next, gram, poly; /* X, X', A, scale (b A + c A^2) */
    double *parts;
    void *rest; /* scratch memory of products */
    bool tall;
};

static matrices matrices_of(const ndp_op_call *c) {
    ndp_view x = c->out[0];
    int64_t small = ndp_newton_schulz_smaller(&x);
    char *at = (char *)c->scratch;
    matrices m = {x,    x,       {at + ndp_newton_schulz_bytes(x.rows * x.cols), NDP_F32, small, small, small},
                  {},   nullptr, nullptr,
                  false};
    m.next.data = at;
    m.poly = m.gram;
    m.poly.data = (char *)m.gram.data + ndp_newton_schulz_bytes(small * small);
    m.parts = (double *)((char *)m.poly.data + ndp_newton_schulz_bytes(small * small));
    m.rest = at + ndp_newton_schulz_own(&x);
    m.tall = x.rows > x.cols;
    return m;
}

/* m.next = m.x / |m.x| */
static ndp_status start(const ndp_op_call *c, const matrices &m) {
    int64_t n = m.x.rows * m.x.cols, groups = ndp_ceil_div(n, NDP_LANES);
    ndp_view from = {m.x.data, NDP_F32, 1, n, n}, to = {m.next.data, NDP_F32, 1, n, n};
    unsigned threads = ndp_block_of(groups, THREADS);
    int64_t blocks = ndp_ceil_div(groups, threads);
    int parts = (int)std::min<int64_t>(blocks, NDP_NEWTON_SCHULZ_PARTS);
    NDP_TRY(ndp_launch(c, ndp_squares_kernel, dim3((unsigned)parts), dim3(threads), NDP_WARP * sizeof(double), from,
                       m.parts));
    return ndp_launch(c, ndp_start_kernel, dim3((unsigned)blocks), dim3(threads), 0, from, to, m.parts, parts);
}

/* m.next = the step of m.x */
static ndp_status step(const ndp_op_call *c, const matrices &m, ndp_polynomial p, double scale) {
    NDP_TRY(ndp_cuda_multiply(c, ndp_cuda_product_of(m.x, m.tall, m.x, !m.tall, m.gram), m.rest));
    ndp_cuda_product poly = ndp_cuda_product_of(m.gram, false, m.gram, false, m.poly);
    poly.alpha = (float)(scale * p.c);
    poly.added = m.gram, poly.beta = (float)(scale * p.b);
    NDP_TRY(ndp_cuda_multiply(c, poly, m.rest));
    ndp_cuda_product next = m.tall ? ndp_cuda_product_of(m.x, false, m.poly, false, m.next)
                                   : ndp_cuda_product_of(m.poly, false, m.x, false, m.next);
    next.added = m.x, next.beta = (float)(scale * p.a);
    return ndp_cuda_multiply(c, next, m.rest);
}

static_assert(NDP_NEWTON_SCHULZ_STEPS % 2 == 1, "with the pass before them, an even number of turns: x is the result");

static ndp_status run_newton_schulz(const ndp_op_call *c) {
    matrices m = matrices_of(c);
    NDP_TRY(start(c, m));
    for (int k = 0; k < NDP_NEWTON_SCHULZ_STEPS; k++) {
        ndp_view x = m.next;
        m.next = m.x, m.x = x;
        NDP_TRY(step(c, m, ndp_newton_schulz_polynomial(c->attr, k), ndp_newton_schulz_scale(c->attr, k, &x)));
    }
    return NDP_OK;
}
NDP_CUDA_KERNEL_WITH_SCRATCH(newton_schulz)
