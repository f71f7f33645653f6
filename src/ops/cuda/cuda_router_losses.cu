/* choice_counts, choice_loads, router_losses_dx, router_bias_step. */
#include "ops/cuda/cuda_kernel.cuh"
#include "ops/cuda/cuda_kernels.hpp"

#include <math.h>

static constexpr int LOSS_THREADS = 256, LOSS_WARPS = LOSS_THREADS / NDP_WARP;

/* ---- choice_counts, choice_loads ----
 *
 * A block counts COUNT_BINS of the numbers [samples, experts]. Each thread counts the choices of its rows in shared
 * memory of its own, so there are no atomics; a warp adds up what all have of a bin. Samples absent: all rows are of
 * one. */

static constexpr int COUNT_BINS = 32;

static __global__ void __launch_bounds__(LOSS_THREADS)
    ndp_choice_counts_kernel(ndp_view choices, ndp_view samples, bool adds, ndp_view counts) {
    int64_t first = (int64_t)blockIdx.x * COUNT_BINS;
    int experts = (int)counts.cols, lane = threadIdx.x % NDP_WARP;
    int *all = (int *)ndp_shared_bytes, *own = all + threadIdx.x; /* [bins][threads] */
    for (int i = 0; i < COUNT_BINS; i++)
        own[i * LOSS_THREADS] = 0;
    for (int64_t t = threadIdx.x; t < choices.rows; t += LOSS_THREADS) {
        int sample = samples.data ? ndp_int(samples, t) : 0;
        const int *row = (const int *)choices.data + t * choices.ld;
        int64_t from = (int64_t)sample * experts - first; /* the bin of the sample's expert 0 */
        if (sample < 0 || from >= COUNT_BINS || from + experts <= 0)
            continue;
        for (int j = 0; j < (int)choices.cols; j++) {
            int e = row[j], bin = (int)from + e;
            if (e >= 0 && bin >= 0 && bin < COUNT_BINS)
                own[bin * LOSS_THREADS]++;
        }
    }
    __syncthreads();
    for (int i = threadIdx.x / NDP_WARP; i < COUNT_BINS && first + i < counts.rows * experts; i += LOSS_WARPS) {
        int n = 0;
        for (int with = lane; with < LOSS_THREADS; with += NDP_WARP)
            n += all[i * LOSS_THREADS + with];
        for (int with = NDP_WARP / 2; with > 0; with /= 2)
            n += __shfl_xor_sync(0xffffffffu, n, with);
        int64_t sample = ndp_div(first + i, experts);
        double *count = (double *)counts.data + sample * counts.ld + first + i - sample * experts;
        if (lane == 0)
            *count = n + (adds ? *count : 0);
    }
}

static ndp_status run_choice_counts(const ndp_op_call *c) {
    unsigned blocks = (unsigned)ndp_ceil_div(c->out[0].rows * c->out[0].cols, COUNT_BINS);
    return ndp_launch(c, ndp_choice_counts_kernel, dim3(blocks), dim3(LOSS_THREADS),
                      COUNT_BINS * LOSS_THREADS * sizeof(int), c->in[0], c->in[1], c->attr->accumulate, c->out[0]);
}
NDP_CUDA_KERNEL(choice_counts)

static ndp_status run_choice_loads(const ndp_op_call *c) { return run_choice_counts(c); }
NDP_CUDA_KERNEL(choice_loads)

/* ---- router_losses_dx: a warp for each row ---- */

struct routers {
    ndp_view logits, counts, samples, acc, dx, losses;
    const double *scale;
    float balance, z_loss, parts;
};

static __device__ __forceinline__ float count_of(const routers &r, int64_t sample, int64_t e) {
    return r.counts.data ? (float)((const double *)r.counts.data)[sample * r.counts.ld + e] : 0;
}

static __global__ void __launch_bounds__(LOSS_THREADS) ndp_router_losses_dx_kernel(routers r) {
    int64_t t = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / NDP_WARP;
    int lane = threadIdx.x % NDP_WARP, experts = (int)r.logits.cols;
    if (t >= r.logits.rows)
        return;
    int sample = ndp_int(r.samples, t);
    float max = -INFINITY, sum = 0, loaded = 0, all = 0;
    for (int e = lane; sample >= 0 && e < experts; e += NDP_WARP)
        max = fmaxf(max, ndp_get(r.logits, t, e));
    max = ndp_warp_max(max);
    for (int e = lane; sample >= 0 && e < experts; e += NDP_WARP) {
        float x = expf(ndp_get(r.logits, t, e) - max), n = count_of(r, sample, e);
        sum += x, loaded += n * x, all += n;
    }
    sum = ndp_warp_sum(sum), loaded = ndp_warp_sum(loaded), all = ndp_warp_sum(all);
    float even = all > 0 ? experts / all : 0, balance = sample < 0 ? 0 : even * loaded / sum;
    float z = sample < 0 ? 0 : max + logf(sum), scale = (float)*r.scale / r.parts;
    for (int e = lane; e < experts; e += NDP_WARP) {
        float earlier = r.acc.data ? ndp_get(r.acc, t, e) : 0, x = 0;
        if (sample >= 0)
            x = scale * expf(ndp_get(r.logits, t, e) - max) / sum *
                (r.balance * (even * count_of(r, sample, e) - balance) + 2 * r.z_loss * z);
        ndp_set(r.dx, t, e, earlier + x);
    }
    if (lane == 0) {
        double *losses = (double *)r.losses.data + t * r.losses.ld;
        losses[0] = balance, losses[1] = (double)z * z;
    }
}

static ndp_status run_router_losses_dx(const ndp_op_call *c) {
    routers r = {c->in[0],
                 c->in[1],
                 c->in[2],
                 c->in[4],
                 c->out[0],
                 c->out[1],
                 (const double *)c->in[3].data,
                 (float)c->attr->balance,
                 (float)c->attr->z_loss,
                 (float)c->attr->parts};
    unsigned threads = ndp_block_of(r.logits.rows * NDP_WARP, LOSS_THREADS);
    dim3 grid((unsigned)ndp_ceil_div(r.logits.rows * NDP_WARP, threads));
    return ndp_launch(c, ndp_router_losses_dx_kernel, grid, dim3(threads), 0, r);
}
NDP_CUDA_KERNEL(router_losses_dx)

/* ---- router_bias_step: a thread for each expert ---- */

static __global__ void __launch_bounds__(LOSS_THREADS)
    ndp_router_bias_kernel(float *bias, int64_t n, int64_t first, const double *loads, int64_t experts, double rate,
                           const double *clip) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    double sum = 0;
    if (i >= n || first + i >= experts || (clip && *clip != *clip))
        return;
    for (int64_t e = 0; e < experts; e++)
        sum += loads[e];
    double all = (double)experts * loads[first + i];
    bias[i] = (float)((double)bias[i] + rate * ((sum > all) - (sum < all)));
}

static ndp_status run_router_bias_step(const ndp_op_call *c) {
    int64_t n = c->out[0].cols;
    unsigned threads = ndp_block_of(n, LOSS_THREADS);
    return ndp_launch(c, ndp_router_bias_kernel, dim3((unsigned)ndp_ceil_div(n, threads)), dim3(threads), 0,
                      (float *)c->out[0].data, n, c->attr->first, (const double *)c->in[1].data, c->in[1].cols,
                      c->attr->scale, (const double *)c->in[2].data);
}
NDP_CUDA_KERNEL(router_bias_step)
