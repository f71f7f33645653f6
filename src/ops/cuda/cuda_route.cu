/* route, route_dx: a warp for each row. Its lanes share the experts; each of the K choices is one more pass over the
 * row's logits, which stay in the cache. */
#include "ops/cuda/cuda_kernel.cuh"
#include "ops/cuda/cuda_kernels.hpp"

#include <math.h>

enum { ROUTE_THREADS = 256 };

/* An expert, and what it is chosen by: its logit, -inf where that is NaN. */
struct candidate {
    float key;
    int expert;
};

static __device__ __forceinline__ bool comes_before(const candidate &a, const candidate &b) {
    return a.key > b.key || (a.key == b.key && a.expert < b.expert);
}

/* All lanes get the first of the warp's candidates. */
static __device__ __forceinline__ candidate warp_first(candidate x) {
    for (int with = NDP_WARP / 2; with > 0; with /= 2) {
        candidate other = {__shfl_xor_sync(0xffffffffu, x.key, with), __shfl_xor_sync(0xffffffffu, x.expert, with)};
        x = comes_before(other, x) ? other : x;
    }
    return x;
}

/* The first expert of row t that comes after `last`. All lanes get it. */
static __device__ candidate next_of(const ndp_view &logits, int64_t t, const candidate &last, int lane) {
    candidate best = {-INFINITY, INT32_MAX};
    for (int e = lane; e < (int)logits.cols; e += NDP_WARP) {
        float x = ndp_get(logits, t, e);
        candidate mine = {x == x ? x : -INFINITY, e};
        if (comes_before(last, mine) && comes_before(mine, best))
            best = mine;
    }
    return warp_first(best);
}

/* The sum of exp(logit - max) over all experts: NaN where a logit is. */
static __device__ float exp_sum(const ndp_view &logits, int64_t t, float max, int lane) {
    float sum = 0;
    for (int e = lane; e < (int)logits.cols; e += NDP_WARP)
        sum += expf(ndp_get(logits, t, e) - max);
    return ndp_warp_sum(sum);
}

/* The largest logit that is a number: of the row's choices alone, or of all. All lanes get it. */
static __device__ float maximum(const ndp_view &logits, int64_t t, const int *choices, int k, bool chosen, int lane) {
    float max = -INFINITY;
    for (int j = lane, n = chosen ? k : (int)logits.cols; j < n; j += NDP_WARP)
        max = fmaxf(max, ndp_get(logits, t, chosen ? choices[j] : j));
    return ndp_warp_max(max);
}

struct routed {
    ndp_view logits, samples, given, choices, weights;
    bool renormalise;
};

static __global__ void __launch_bounds__(ROUTE_THREADS) ndp_route_kernel(routed r) {
    int64_t t = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / NDP_WARP;
    int lane = threadIdx.x % NDP_WARP, k = (int)r.choices.cols;
    if (t >= r.logits.rows)
        return;
    int *choices = (int *)r.choices.data + t * r.choices.ld;
    const int *given = r.given.data ? (const int *)r.given.data + t * r.given.ld : NULL;
    bool padding = (r.samples.data && ndp_int(r.samples, t) < 0) || (given && given[0] < 0);
    for (int j = lane; padding && j < k; j += NDP_WARP) {
        choices[j] = -1;
        ndp_set(r.weights, t, j, 0);
    }
    if (padding)
        return;
    candidate last = {INFINITY, -1};
    float max = given ? maximum(r.logits, t, given, k, r.renormalise, lane) : 0, chosen = 0;
    for (int j = lane; given && j < k; j += NDP_WARP) {
        float x = expf(ndp_get(r.logits, t, given[j]) - max);
        choices[j] = given[j];
        chosen += x;
        ndp_set(r.weights, t, j, x);
    }
    chosen = ndp_warp_sum(chosen);
    for (int j = 0; !given && j < k; j++) {
        last = next_of(r.logits, t, last, lane);
        float x = ndp_get(r.logits, t, last.expert);
        max = j == 0 ? x : max;
        chosen += expf(x - max);
        if (lane == 0) {
            choices[j] = last.expert;
            ndp_set(r.weights, t, j, expf(x - max));
        }
    }
    __syncwarp();
    float all = exp_sum(r.logits, t, max, lane), sum = r.renormalise && all == all ? chosen : all;
    for (int j = 0; lane == 0 && j < k; j++)
        ndp_set(r.weights, t, j, ndp_get(r.weights, t, j) / sum);
}

/* The logits again; a warp for each row. */
static __global__ void __launch_bounds__(ROUTE_THREADS) ndp_route_seen_kernel(ndp_view logits, ndp_view seen) {
    int64_t t = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / NDP_WARP;
    for (int e = threadIdx.x % NDP_WARP; t < logits.rows && e < (int)logits.cols; e += NDP_WARP)
        ndp_set(seen, t, e, ndp_get(logits, t, e));
}

static dim3 route_grid(int64_t rows, unsigned threads) {
    return dim3((unsigned)ndp_ceil_div(rows * NDP_WARP, threads));
}

static ndp_status run_route(const ndp_op_call *c) {
    routed r = {c->in[0], c->in[1], c->in[2], c->out[0], c->out[1], c->attr->renormalise};
    unsigned threads = ndp_block_of(r.logits.rows * NDP_WARP, ROUTE_THREADS);
    if (c->out[2].data)
        NDP_TRY(ndp_launch(c, ndp_route_seen_kernel, route_grid(r.logits.rows, threads), dim3(threads), 0, r.logits,
                           c->out[2]));
    return ndp_launch(c, ndp_route_kernel, route_grid(r.logits.rows, threads), dim3(threads), 0, r);
}
NDP_CUDA_KERNEL(route)

/* ---- the gradient: p[e] (dweights of e - along), p[e] = exp(logit - max) / sum ---- */

struct routed_back {
    ndp_view dw, logits, choices, acc, dx;
    bool renormalise;
};

static __global__ void __launch_bounds__(ROUTE_THREADS) ndp_route_dx_kernel(routed_back r) {
    int64_t t = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / NDP_WARP;
    int lane = threadIdx.x % NDP_WARP, k = (int)r.choices.cols;
    if (t >= r.logits.rows)
        return;
    const int *choices = (const int *)r.choices.data + t * r.choices.ld;
    bool padding = choices[0] < 0;
    float max = padding ? 0 : maximum(r.logits, t, choices, k, r.renormalise, lane), sum = 0, along = 0;
    for (int j = lane; !padding && j < k; j += NDP_WARP) {
        float x = expf(ndp_get(r.logits, t, choices[j]) - max);
        sum += x, along += x * ndp_get(r.dw, t, j);
    }
    along = ndp_warp_sum(along), sum = ndp_warp_sum(sum);
    if (!padding && !r.renormalise)
        sum = exp_sum(r.logits, t, max, lane);
    along /= sum;
    for (int e = lane; e < (int)r.logits.cols; e += NDP_WARP) {
        float earlier = r.acc.data ? ndp_get(r.acc, t, e) : 0, by = r.renormalise ? 0 : -along;
        for (int j = 0; !padding && j < k; j++)
            by = choices[j] == e ? ndp_get(r.dw, t, j) - along : by;
        float over = ndp_get(r.logits, t, e) - max; /* above 0: of an expert that does not count */
        ndp_set(r.dx, t, e, padding ? earlier : earlier + expf(over > 0 ? 0 : over) / sum * by);
    }
}

static ndp_status run_route_dx(const ndp_op_call *c) {
    routed_back r = {c->in[0], c->in[1], c->in[2], c->in[3], c->out[0], c->attr->renormalise};
    unsigned threads = ndp_block_of(r.logits.rows * NDP_WARP, ROUTE_THREADS);
    return ndp_launch(c, ndp_route_dx_kernel, route_grid(r.logits.rows, threads), dim3(threads), 0, r);
}
NDP_CUDA_KERNEL(route_dx)
