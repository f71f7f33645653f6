/* row_score, document_sums, pair_loss, pair_rows. */
#include "ops/cuda/cuda_kernel.cuh"
#include "ops/cuda/cuda_kernels.hpp"

#include <math.h>
extern "C" {
#define inline __host__ __device__ inline /* kernels also call the functions of this header */
#include "ops/preference.h"
#undef inline
}

static __device__ __forceinline__ double wide(const ndp_view &x, int64_t r, int64_t c) {
    return x.dtype == NDP_F64 ? ((const double *)x.data)[r * x.ld + c] : (double)ndp_get(x, r, c);
}
static __device__ __forceinline__ void set_wide(const ndp_view &x, int64_t r, int64_t c, double value) {
    ((double *)x.data)[r * x.ld + c] = value;
}

/* ---- row_score: a thread for each row ---- */

static __global__ void ndp_row_score_kernel(ndp_view x, ndp_view scale, ndp_view nll, ndp_view dx) {
    int64_t t = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= x.rows)
        return;
    ndp_set(nll, t, 0, -ndp_get(x, t, 0));
    if (dx.data)
        ndp_set(dx, t, 0, (float)-wide(scale, t, 0));
}

static ndp_status run_row_score(const ndp_op_call *c) {
    unsigned threads = ndp_block_of(c->in[0].rows, 256);
    return ndp_launch(c, ndp_row_score_kernel, dim3((unsigned)ndp_ceil_div(c->in[0].rows, threads)), dim3(threads), 0,
                      c->in[0], c->in[1], c->out[0], c->out[1]);
}
NDP_CUDA_KERNEL(row_score)

/* ---- document_sums: a block for each document ---- */

enum { SUM_THREADS = 256 };

static __global__ void __launch_bounds__(SUM_THREADS)
    ndp_document_sums_kernel(ndp_view nll, ndp_view documents, ndp_view sums) {
    double *room = (double *)ndp_shared_bytes, sum = 0, count = 0;
    for (int64_t t = threadIdx.x; t < nll.rows; t += blockDim.x) {
        int code = ndp_int(documents, t);
        if (ndp_document_has(code, NDP_DOCUMENT_ANSWER) && ndp_document_of(code) == blockIdx.x) {
            sum -= wide(nll, t, 0);
            count += 1;
        }
    }
    room[threadIdx.x] = sum, room[blockDim.x + threadIdx.x] = count;
    for (unsigned half = SUM_THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half && threadIdx.x + half < blockDim.x) {
            room[threadIdx.x] += room[threadIdx.x + half];
            room[blockDim.x + threadIdx.x] += room[blockDim.x + threadIdx.x + half];
        }
    }
    __syncthreads();
    if (threadIdx.x < 2)
        set_wide(sums, blockIdx.x, threadIdx.x, room[threadIdx.x * blockDim.x]);
}

static ndp_status run_document_sums(const ndp_op_call *c) {
    unsigned threads = ndp_block_of(c->in[0].rows, SUM_THREADS);
    return ndp_launch(c, ndp_document_sums_kernel, dim3((unsigned)c->attr->parts), dim3(threads),
                      2 * threads * sizeof(double), c->in[0], c->in[1], c->out[0]);
}
NDP_CUDA_KERNEL(document_sums)

/* ---- pair_loss: a thread for each pair ---- */

static __global__ void ndp_pair_loss_kernel(ndp_preference p, ndp_view sums, ndp_view reference, ndp_view slopes,
                                            ndp_view pairs) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    ndp_pair_document d[2];
    double out[NDP_PAIR_COLUMNS], by[2];
    if (i >= pairs.rows)
        return;
    for (int k = 0; k < 2; k++) {
        d[k].logp = wide(sums, 2 * i + k, 0), d[k].tokens = wide(sums, 2 * i + k, 1);
        d[k].reference = reference.data ? wide(reference, 2 * i + k, 0) : 0;
    }
    ndp_pair_judge(&p, &d[0], &d[1], out, &by[0], &by[1]);
    for (int k = 0; k < 2; k++)
        set_wide(slopes, 2 * i + k, 0, by[k]);
    for (int j = 0; j < NDP_PAIR_COLUMNS; j++)
        set_wide(pairs, i, j, out[j]);
}

static ndp_status run_pair_loss(const ndp_op_call *c) {
    const ndp_preference p = ndp_pair_preference(c->attr);
    unsigned threads = ndp_block_of(c->out[1].rows, NDP_WARP);
    return ndp_launch(c, ndp_pair_loss_kernel, dim3((unsigned)ndp_ceil_div(c->out[1].rows, threads)), dim3(threads), 0,
                      p, c->in[0], c->in[1], c->out[0], c->out[1]);
}
NDP_CUDA_KERNEL(pair_loss)

/* ---- pair_rows: a thread for each row ---- */

struct pair_rows {
    ndp_view documents, nll, sums, slopes, pairs, scales, parts;
    const double *scale, *nll_scale;
    double nll_weight;
};

static __global__ void ndp_pair_rows_kernel(pair_rows p) {
    int64_t t = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= p.scales.rows)
        return;
    int code = ndp_int(p.documents, t);
    int64_t document = ndp_document_of(code), pair = document / 2;
    bool known = document >= 0 && document < p.sums.rows, answer = known && ndp_document_has(code, NDP_DOCUMENT_ANSWER);
    bool counts = known && ndp_document_has(code, NDP_DOCUMENT_NLL);
    double tokens = answer ? wide(p.sums, 2 * pair, 1) + wide(p.sums, 2 * pair + 1, 1) : 1;
    double by = answer ? -wide(p.slopes, document, 0) * *p.scale : 0;
    for (int j = 0; j < NDP_PAIR_COLUMNS; j++)
        set_wide(p.parts, t, j, answer ? wide(p.pairs, pair, j) / tokens : 0);
    set_wide(p.parts, t, NDP_PAIR_NLL, counts ? wide(p.nll, t, 0) : 0);
    set_wide(p.scales, t, 0, counts ? by + p.nll_weight * *p.nll_scale : by);
}

static ndp_status run_pair_rows(const ndp_op_call *c) {
    pair_rows p = {c->in[NDP_PAIR_ROWS_DOCUMENTS],
                   c->in[NDP_PAIR_ROWS_NLL],
                   c->in[NDP_PAIR_ROWS_SUMS],
                   c->in[NDP_PAIR_ROWS_SLOPES],
                   c->in[NDP_PAIR_ROWS_PAIRS],
                   c->out[0],
                   c->out[1],
                   (const double *)c->in[NDP_PAIR_ROWS_SCALE].data,
                   (const double *)c->in[NDP_PAIR_ROWS_NLL_SCALE].data,
                   c->attr->scale};
    unsigned threads = ndp_block_of(p.scales.rows, 256);
    return ndp_launch(c, ndp_pair_rows_kernel, dim3((unsigned)ndp_ceil_div(p.scales.rows, threads)), dim3(threads), 0,
                      p);
}
NDP_CUDA_KERNEL(pair_rows)
