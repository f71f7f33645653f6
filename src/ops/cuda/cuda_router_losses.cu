/* choice_counts, choice_loads, router_losses_dx, router_bias_step. */
#include "ops/cuda/cuda_kernel.cuh"
#include "ops/cuda/cuda_kernels.hpp"

#include <math.h>

enum { LOSS_THREADS = 256 };

/* ---- choice_counts, choice_loads: a warp for each expert of each sample; samples absent: all are of one ---- */

static __global__ void __launch_bounds__(LOSS_THREADS)
    ndp_choice_counts_kernel(ndp_view choices, ndp_view samples, bool adds, ndp_view counts) {
    int64_t at = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / NDP_WARP;
    int64_t sample = at / counts.cols, expert = at % counts.cols, k = choices.cols;
    int lane = threadIdx.x % NDP_WARP;
    if (sample >= counts.rows)
        return;
    float n = 0; /* of one lane: far below 2^24 */
    for (int64_t i = lane; i < choices.rows * k; i += NDP_WARP)
        n += (!samples.data || ndp_int(samples, i / k) == sample) &&
             ((const int *)choices.data)[i / k * choices.ld + i % k] == expert;
    n = ndp_warp_sum(n);
    double *count = (double *)counts.data + sample * counts.ld + expert;
    if (lane == 0)
        *count = (double)n + (adds ? *count : 0);
}

static ndp_status run_choice_counts(const ndp_op_call *c) {
    int64_t lanes = c->out[0].rows * c->out[0].cols * NDP_WARP;
    unsigned threads = ndp_block_of(lanes, LOSS_THREADS);
    return ndp_launch(c, ndp_choice_counts_kernel, dim3((unsigned)ndp_ceil_div(lanes, threads)), dim3(threads), 0,
                      c->in[0], c->in[1], c->attr->accumulate, c->out[0]);
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
