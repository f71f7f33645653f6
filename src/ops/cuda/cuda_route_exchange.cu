/* route_exchange: three kernels. In the first two a warp has a pair of ranks, 32 rows at a time: it counts the choices
 * that one's rows have of the other's experts, then, behind those of the ranks before, the rows that go in this round.
 * In the last one a warp has a rank: it places this rank's rows that go there, and the rows that come from there, in
 * the order of rows. There are no atomics.
 *
 * P^2 T / 16 steps of some 20 instructions for each choice of a row, and 2 P T / 32 more. */
#include "ops/cuda/cuda_kernel.cuh"
#include "ops/cuda/cuda_kernels.hpp"
#include "ops/route.h"

enum { EXCHANGE_THREADS = 256 };

struct exchange {
    ndp_view choices, index, order, places, rows, here, later;
    int *counts;  /* [P,P]: choices */
    int64_t t;    /* rows of a rank */
    int64_t each; /* choices of a round */
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

/* The choices that a row has of experts of rank q; 0 also where there is no row. */
static __device__ __forceinline__ int choices_of(const exchange &x, int64_t from, int64_t row, int q) {
    int n = 0;
    for (int64_t j = 0; row < x.t && j < x.choices.cols; j++)
        n += rank_of(x, from * x.t + row, j) == q;
    return n;
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

/* The choices of rank `to` that come before those of rank `from`. */
static __device__ __forceinline__ int64_t counted_before(const exchange &x, int64_t from, int64_t to) {
    int64_t n = 0;
    for (int64_t f = 0; f < from; f++)
        n += x.counts[f * x.ranks + to];
    return n;
}

/* In a warp: whether the row with n choices goes in this round; *before: of the choices before the warp's rows. */
static __device__ __forceinline__ bool goes_now(const exchange &x, int n, int64_t *before, int lane) {
    int end = n;
    for (int by = 1; by < NDP_WARP; by *= 2) {
        int more = __shfl_up_sync(0xffffffffu, end, by);
        end += lane >= by ? more : 0;
    }
    int64_t round = x.index.data ? 1 + *(const int64_t *)x.index.data : 0;
    bool goes = n > 0 && (*before + end - n) / x.each == round;
    *before += __shfl_sync(0xffffffffu, end, NDP_WARP - 1);
    return goes;
}

static __device__ void clear(const ndp_view &v) {
    int64_t all = v.rows * v.cols, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < all; i += step)
        ((int *)v.data)[i / v.cols * v.ld + i % v.cols] = -1;
}

static __global__ void __launch_bounds__(EXCHANGE_THREADS) ndp_count_choices_kernel(exchange x) {
    int64_t pair = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / NDP_WARP;
    int lane = threadIdx.x % NDP_WARP;
    int64_t from = pair / x.ranks;
    int n = 0;
    clear(x.order);
    clear(x.places);
    clear(x.here);
    if (from >= x.ranks)
        return;
    for (int64_t row = lane; row < x.t; row += NDP_WARP)
        n += choices_of(x, from, row, (int)(pair % x.ranks));
    for (int by = NDP_WARP / 2; by > 0; by /= 2)
        n += __shfl_down_sync(0xffffffffu, n, by);
    if (lane == 0)
        x.counts[pair] = n;
}

/* The most rounds that follow the first one: those of the rank with the most choices. */
static __device__ void write_later(const exchange &x) {
    int64_t most = 0;
    for (int to = 0; to < x.ranks; to++) {
        int64_t n = counted_before(x, x.ranks, to);
        most = n > 0 && (n - 1) / x.each > most ? (n - 1) / x.each : most;
    }
    *(int64_t *)x.later.data = most;
}

static __global__ void __launch_bounds__(EXCHANGE_THREADS) ndp_count_rows_kernel(exchange x) {
    int64_t pair = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / NDP_WARP;
    int lane = threadIdx.x % NDP_WARP, n = 0;
    int64_t from = pair / x.ranks, to = pair % x.ranks;
    if (from >= x.ranks)
        return;
    int64_t before = counted_before(x, from, to);
    for (int64_t first = 0; first < x.t; first += NDP_WARP)
        n += __popc(__ballot_sync(0xffffffffu, goes_now(x, choices_of(x, from, first + lane, (int)to), &before, lane)));
    if (lane == 0)
        ((int *)x.rows.data)[from * x.rows.ld + to] = n;
    if (pair == 0 && lane == 0)
        write_later(x);
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
    int64_t before = counted_before(x, from, to);
    for (int64_t first = 0; first < x.t; first += NDP_WARP) {
        int64_t row = first + lane;
        bool goes = goes_now(x, choices_of(x, from, row, to), &before, lane);
        unsigned all = __ballot_sync(0xffffffffu, goes);
        int64_t mine = at + __popc(all & ((1u << lane) - 1));
        if (goes && going)
            write_going(x, row, first_of(x, from * x.t + row, to), mine);
        else if (goes)
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
    exchange x = {c->in[0],
                  c->in[1],
                  c->out[0],
                  c->out[1],
                  c->out[2],
                  c->out[3],
                  c->out[4],
                  (int *)c->scratch,
                  c->in[0].rows / ranks,
                  ndp_round_choices(c->attr, c->in[0].cols),
                  c->attr->experts,
                  (int)ranks,
                  (int)c->attr->first};
    unsigned threads = ndp_block_of(pairs, EXCHANGE_THREADS), few = ndp_block_of(warps, EXCHANGE_THREADS);
    dim3 all((unsigned)ndp_ceil_div(pairs, threads));
    NDP_TRY(ndp_launch(c, ndp_count_choices_kernel, all, dim3(threads), 0, x));
    NDP_TRY(ndp_launch(c, ndp_count_rows_kernel, all, dim3(threads), 0, x));
    return ndp_launch(c, ndp_place_exchange_kernel, dim3((unsigned)ndp_ceil_div(warps, few)), dim3(few), 0, x);
}
NDP_CUDA_KERNEL_WITH_SCRATCH(route_exchange)
