/* A step's own numbers: count_valid, zero, loss_scale, clip_factor. */
#include "ops/cuda/cuda_kernel.cuh"
#include "ops/cuda/cuda_kernels.hpp"

/* ---- count_valid: one block, since a step's labels are few ---- */

enum { COUNT_THREADS = 1024 };

static __device__ __forceinline__ int64_t warp_count(int64_t n) {
    for (int with = NDP_WARP / 2; with > 0; with /= 2)
        n += __shfl_xor_sync(0xffffffffu, n, with);
    return n;
}

__global__ void __launch_bounds__(COUNT_THREADS) ndp_count_valid_kernel(ndp_view labels, int mask, int64_t *valid) {
    int64_t *warps = (int64_t *)ndp_shared_bytes, own = 0;
    int lane = threadIdx.x % NDP_WARP;
    for (int64_t r = 0; r < labels.rows; r++)
        for (int64_t t = threadIdx.x; t < labels.cols; t += blockDim.x) {
            int label = ((const int *)labels.data)[r * labels.ld + t];
            own += label >= 0 && (label & mask) == mask;
        }
    own = warp_count(own);
    if (lane == 0)
        warps[threadIdx.x / NDP_WARP] = own;
    __syncthreads();
    own = warp_count(lane < (int)(blockDim.x / NDP_WARP) ? warps[lane] : 0);
    if (threadIdx.x == 0)
        *valid = own;
}

static ndp_status run_count_valid(const ndp_op_call *c) {
    return ndp_launch(c, ndp_count_valid_kernel, dim3(1), dim3(ndp_block_of(c->in[0].cols, COUNT_THREADS)),
                      NDP_WARP * sizeof(int64_t), c->in[0], c->attr->mask, (int64_t *)c->out[0].data);
}
NDP_CUDA_KERNEL(count_valid)

/* ---- zero ---- */

/* ndp_dtype_size, which the plugin cannot call. */
static int64_t size_of(ndp_dtype t) {
    static const int64_t sizes[NDP_DTYPES] = {4, 2, 2, 8, 4, 2, 1, 8};
    static_assert(NDP_F32 == 0 && NDP_F16 == 2 && NDP_I32 == 4 && NDP_U8 == 6 && NDP_I64 == 7 && NDP_DTYPES == 8);
    return sizes[t];
}

/* `bytes`: a view of bytes, eight of which are zeroed at once where that is aligned. */
struct zero_bytes_each {
    ndp_view bytes;
    __device__ void operator()(int64_t r, int64_t c) const {
        unsigned char *at = (unsigned char *)bytes.data + r * bytes.ld + c;
        if (c + NDP_LANES <= bytes.cols && ((uintptr_t)at & 7) == 0)
            *(uint64_t *)at = 0;
        else
            for (int k = 0; k < NDP_LANES && c + k < bytes.cols; k++)
                at[k] = 0;
    }
};

static ndp_status run_zero(const ndp_op_call *c) {
    int64_t size = size_of(c->out[0].dtype);
    ndp_view bytes = {c->out[0].data, NDP_U8, c->out[0].rows, c->out[0].cols * size, c->out[0].ld * size};
    return ndp_each8(c, &bytes, zero_bytes_each{bytes});
}
NDP_CUDA_KERNEL(zero)

/* ---- numbers, each made by one thread ---- */

__global__ void ndp_loss_scale_kernel(const int64_t *valid, double *scale) {
    *scale = *valid > 0 ? 1.0 / (double)*valid : 0.0;
}

static ndp_status run_loss_scale(const ndp_op_call *c) {
    return ndp_launch(c, ndp_loss_scale_kernel, dim3(1), dim3(1), 0, (const int64_t *)c->in[0].data,
                      (double *)c->out[0].data);
}
NDP_CUDA_KERNEL(loss_scale)

static __device__ __forceinline__ bool is_finite(double x) { return x - x == 0; }

/* loss: NULL: there is none. */
__global__ void ndp_clip_factor_kernel(const double *squares, const double *loss, double most, double scale,
                                       double *norm, double *clip) {
    double root = scale * sqrt(*squares), factor = most == 0 || root == 0 ? 1 : most / root, sum = loss ? *loss : 0;
    *norm = root;
    *clip = !is_finite(root) || !is_finite(sum) ? NAN : scale * (factor > 1 ? 1 : factor);
}

static ndp_status run_clip_factor(const ndp_op_call *c) {
    return ndp_launch(c, ndp_clip_factor_kernel, dim3(1), dim3(1), 0, (const double *)c->in[0].data,
                      (const double *)c->in[1].data, c->attr->max_norm, c->attr->scale, (double *)c->out[0].data,
                      (double *)c->out[1].data);
}
NDP_CUDA_KERNEL(clip_factor)
