/* route_exchange: two kernels. The first one has a warp for each pair of ranks, which counts the rows that go from one
 * to the other, 32 at a time. The second one has a warp for each rank: it places this rank's rows that go there, and
 * the rows that come from there, in the order of rows, behind those of the ranks before. There are no atomics.
 *
 * P^2 T / 32 steps of some 20 instructions for each choice of a row, and 2 P T / 32 more. */
#include "ops/cuda/cuda_kernel.cuh"
#include "ops/cuda/cuda_kernels.hpp"

enum { EXCHANGE_THREADS = 256 };

struct exchange {
    ndp_view choices, order, places, rows, here;
    int64_t t; /* rows of a rank */
    int experts, ranks, me;
};

/* As ndp_expert_rank (ops/route.h). */
static __device__ __forceinline__ int rank_of(const exchange &x, int64_t row, int64_t j) {
    int e = ((const int *)x.choices.data)[row * x.choices.ld + j];
    return e < 0 ? -1 : (int)(((int64_t)x.ranks * (e + 1) - 1) / x.experts);
}

/* The first choice of a row that is of rank q; the number of choices: none is. */
static __device__ __forceinline__ int64_t first_of(const exchange &x, int64_t row, int q) {
    int64_t j = 0;
    while (j < x.choices.cols && rank_of(x, row, j) != q)
        j++;
    return j;
}

/* How many other ranks the choices before the j-th have. */
static __device__ __forceinline__ int ranks_before(const exchange &x, int64_t row, int64_t j) {
    int n = 0;
    for (int64_t i = 0; i < j; i++) {
        int q = rank_of(x, row, i);
        n += q >= 0 && first_of(x, row, q) == i;
    }
    return n;
}

static __device__ __forceinline__ int64_t rows_at(const exchange &x, int64_t from, int64_t to) {
    return ((const int *)x.rows.data)[from * x.rows.ld + to];
}

static __device__ void clear(const ndp_view &v) {
    int64_t all = v.rows * v.cols, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < all; i += step)
        ((int *)v.data)[i / v.cols * v.ld + i % v.cols] = -1;
}

static __global__ void __launch_bounds__(EXCHANGE_THREADS) ndp_count_exchange_kernel(exchange x) {
    int64_t pair = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / NDP_WARP;
    int lane = threadIdx.x % NDP_WARP;
    int64_t from = pair / x.ranks;
    int n = 0;
    clear(x.order);
    clear(x.places);
    clear(x.here);
    if (from >= x.ranks)
        return;
    for (int64_t first = 0; first < x.t; first += NDP_WARP) {
        int64_t row = first + lane;
        bool goes = row < x.t && first_of(x, from * x.t + row, (int)(pair % x.ranks)) < x.choices.cols;
        n += __popc(__ballot_sync(0xffffffffu, goes));
    }
    if (lane == 0)
        ((int *)x.rows.data)[from * x.rows.ld + pair % x.ranks] = n;
}

/* The row's own choices of experts of this rank. */
static __device__ void write_here(const exchange &x, int64_t row, int64_t at) {
    for (int64_t j = 0; j < x.choices.cols; j++)
        if (rank_of(x, row, j) == x.me)
            ((int *)x.here.data)[at * x.here.ld + j] = ((const int *)x.choices.data)[row * x.choices.ld + j];
}

static __device__ void write_going(const exchange &x, int64_t row, int64_t j, int64_t at) {
    int64_t k = ranks_before(x, x.me * x.t + row, j);
    ((int *)x.places.data)[row * x.places.ld + k] = (int)at;
    ((int *)x.order.data)[at * x.order.ld] = (int)(row * x.places.cols + k);
}

/* Rows that rank `from` sends to rank `to`, one of which this is, from place `at` on. */
static __device__ void place(const exchange &x, int64_t from, int to, bool going, int64_t at, int lane) {
    for (int64_t first = 0; first < x.t; first += NDP_WARP) {
        int64_t row = first + lane, j = row < x.t ? first_of(x, from * x.t + row, to) : x.choices.cols;
        unsigned all = __ballot_sync(0xffffffffu, j < x.choices.cols);
        int64_t mine = at + __popc(all & ((1u << lane) - 1));
        if (j < x.choices.cols && going)
            write_going(x, row, j, mine);
        else if (j < x.choices.cols)
            write_here(x, from * x.t + row, mine);
        at += __popc(all);
    }
}

static __global__ void __launch_bounds__(EXCHANGE_THREADS) ndp_place_exchange_kernel(exchange x) {
    int64_t other = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / NDP_WARP, goes = 0, comes = 0;
    int lane = threadIdx.x % NDP_WARP;
    if (other >= x.ranks)
        return;
    for (int64_t q = 0; q < other; q++)
        goes += rows_at(x, x.me, q), comes += rows_at(x, q, x.me);
    place(x, x.me, (int)other, true, goes, lane);
    place(x, other, x.me, false, comes, lane);
}

static ndp_status run_route_exchange(const ndp_op_call *c) {
    int64_t ranks = c->attr->ranks, pairs = ranks * ranks * NDP_WARP, warps = ranks * NDP_WARP;
    exchange x = {c->in[0],         c->out[0],  c->out[1],          c->out[2], c->out[3], c->in[0].rows / ranks,
                  c->attr->experts, (int)ranks, (int)c->attr->first};
    unsigned threads = ndp_block_of(pairs, EXCHANGE_THREADS), few = ndp_block_of(warps, EXCHANGE_THREADS);
    ndp_status st =
        ndp_launch(c, ndp_count_exchange_kernel, dim3((unsigned)ndp_ceil_div(pairs, threads)), dim3(threads), 0, x);
    return st != NDP_OK
               ? st
               : ndp_launch(c, ndp_place_exchange_kernel, dim3((unsigned)ndp_ceil_div(warps, few)), dim3(few), 0, x);
}
NDP_CUDA_KERNEL(route_exchange)
