/* route_order: a counting sort by one block. Each warp has a run of the choices, and reads it twice, NDP_WARP choices
 * at a time: once to count those of each expert, once to place them. The counts are in shared memory, [warps][E]; a
 * scan over experts, then over warps, turns them into the places where each warp's rows of an expert begin. So rows
 * keep their order, and no two lanes write one number: there are no atomics.
 *
 * Every choice is read twice and placed once; a block of 32 warps takes N / 1024 steps of about 100 instructions for
 * each of the two. */
#include "ops/cuda/cuda_kernel.cuh"
#include "ops/cuda/cuda_kernels.hpp"

struct ordered {
    ndp_view choices, order, places, offsets;
    int first, experts, k, n;
};

/* The expert of choice i, from `first` on; -1: none of these. */
static __device__ __forceinline__ int expert_of(const ordered &o, int i) {
    int t = i / o.k, e = ((const int *)o.choices.data)[t * o.choices.ld + i - t * o.k] - o.first;
    return e >= 0 && e < o.experts ? e : -1;
}

/* How many lanes of the warp have this lane's expert: of those before it, and of all. */
static __device__ __forceinline__ void count_alike(int e, int lane, int *before, int *all) {
    *before = *all = 0;
    for (int other = 0; other < NDP_WARP; other++) {
        bool alike = __shfl_sync(0xffffffffu, e, other) == e;
        *before += alike && other < lane;
        *all += alike;
    }
}

/* Walks the warp's run. counts[e]: how many of expert e there were so far, or, with `place`, where its next row goes.
 */
static __device__ void walk(const ordered &o, int begin, int end, int lane, int *counts, bool place) {
    for (int first = begin; first < end; first += NDP_WARP) {
        int i = first + lane, e = i < end ? expert_of(o, i) : -1, before, all;
        count_alike(e, lane, &before, &all);
        int at = e < 0 ? -1 : counts[e] + before;
        if (place && i < end) {
            int t = i / o.k;
            ((int *)o.places.data)[t * o.places.ld + i - t * o.k] = at;
            if (at >= 0)
                ((int *)o.order.data)[at * o.order.ld] = i;
        }
        __syncwarp(); /* all have read the counts */
        if (e >= 0 && before == 0)
            counts[e] = at + all;
        __syncwarp();
    }
}

/* By one warp: totals[e] becomes the sum of those before e, which is the offset of expert e. Returns the sum of all. */
static __device__ int scan_experts(const ordered &o, int lane, int *totals) {
    int sum = 0;
    for (int first = 0; first < o.experts; first += NDP_WARP) {
        int e = first + lane, own = e < o.experts ? totals[e] : 0, end = own;
        for (int by = 1; by < NDP_WARP; by *= 2) {
            int more = __shfl_up_sync(0xffffffffu, end, by);
            end += lane >= by ? more : 0;
        }
        if (e < o.experts)
            totals[e] = ((int *)o.offsets.data)[e * o.offsets.ld] = sum + end - own;
        sum += __shfl_sync(0xffffffffu, end, NDP_WARP - 1);
    }
    if (lane == 0)
        ((int *)o.offsets.data)[o.experts * o.offsets.ld] = sum;
    return sum;
}

/* counts: [warps][E], then [E] for sums over warps, then one number. */
static __global__ void __launch_bounds__(NDP_MAX_THREADS) ndp_route_order_kernel(ordered o) {
    int warps = blockDim.x / NDP_WARP, warp = threadIdx.x / NDP_WARP, lane = threadIdx.x % NDP_WARP;
    int *counts = (int *)ndp_shared_bytes, *own = counts + warp * o.experts, *totals = counts + warps * o.experts;
    int begin = (int)((int64_t)o.n * warp / warps), end = (int)((int64_t)o.n * (warp + 1) / warps);
    for (int e = threadIdx.x; e < warps * o.experts; e += blockDim.x)
        counts[e] = 0;
    __syncthreads();
    walk(o, begin, end, lane, own, false);
    __syncthreads();
    for (int e = threadIdx.x; e < o.experts; e += blockDim.x) {
        totals[e] = 0;
        for (int w = 0; w < warps; w++)
            totals[e] += counts[w * o.experts + e];
    }
    __syncthreads();
    if (warp == 0) {
        int sum = scan_experts(o, lane, totals);
        if (lane == 0)
            totals[o.experts] = sum;
    }
    __syncthreads();
    for (int e = threadIdx.x; e < o.experts; e += blockDim.x)
        for (int w = 0, next = totals[e]; w < warps; w++) {
            int more = counts[w * o.experts + e];
            counts[w * o.experts + e] = next;
            next += more;
        }
    __syncthreads();
    walk(o, begin, end, lane, own, true);
    for (int i = totals[o.experts] + threadIdx.x; i < o.order.rows; i += blockDim.x)
        ((int *)o.order.data)[i * o.order.ld] = -1;
}

/* Fewer warps where many experts' counts would not fit the memory that every GPU has. */
static ndp_status run_route_order(const ndp_op_call *c) {
    const ndp_view *choices = &c->in[0];
    ordered o = {*choices,         c->out[0],          c->out[1],          c->out[2], (int)c->attr->first,
                 c->attr->experts, (int)choices->cols, (int)(choices->rows * choices->cols)};
    int64_t row = (int64_t)o.experts * sizeof(int), most = (int64_t)NDP_SHARED_FREE / row - 2;
    unsigned threads = ndp_block_of(o.n, NDP_MAX_THREADS);
    if (most * NDP_WARP < (int64_t)threads)
        threads = (unsigned)(most > 1 ? most : 1) * NDP_WARP;
    return ndp_launch(c, ndp_route_order_kernel, dim3(1), dim3(threads),
                      (size_t)(threads / NDP_WARP + 1) * row + sizeof(int), o);
}
NDP_CUDA_KERNEL(route_order)
