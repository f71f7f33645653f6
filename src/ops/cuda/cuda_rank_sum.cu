/* Sums of ranks' buffers for collectives (ndp_device.sum): each element by one thread, in rank order, so the bits are
 * those of the host's sums (comm/rank_sum.h). */
#include "device/cuda/cuda_device.hpp"
#include "ops/cuda/cuda_kernel.cuh"

namespace {

struct Buffers {
    void *in[NDP_MOST_SUMMED], *out[NDP_MOST_SUMMED];
    int ranks, outs;
    bool max, accumulate;
};

/* What an element is summed in. */
template <typename T> struct Wide {
    using type = T;
    static __device__ T of(T x) { return x; }
    static __device__ T back(T x) { return x; }
};
template <> struct Wide<__nv_bfloat16> {
    using type = float;
    static __device__ float of(__nv_bfloat16 x) { return __bfloat162float(x); }
    static __device__ __nv_bfloat16 back(float x) { return __float2bfloat16_rn(x); }
};

template <typename A> __device__ __forceinline__ A fold(A a, A x, bool max) {
    return !max ? a + x : a > x || a != a ? a : x;
}

template <typename T> __global__ void ndp_rank_sum_kernel(Buffers b, int64_t count) {
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        typename Wide<T>::type sum = Wide<T>::of(((const T *)b.in[0])[i]);
        for (int r = 1; r < b.ranks; r++)
            sum = fold(sum, Wide<T>::of(((const T *)b.in[r])[i]), b.max);
        if (b.accumulate)
            sum = fold(sum, Wide<T>::of(((const T *)b.out[0])[i]), b.max);
        T x = Wide<T>::back(sum);
        for (int k = 0; k < b.outs; k++)
            ((T *)b.out[k])[i] = x;
    }
}

template <typename T> cudaError_t launch(ndp_queue *q, const Buffers &b, int64_t count) {
    enum { THREADS = 256 };
    int64_t blocks = ndp_ceil_div(count, THREADS);
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)(blocks < 4096 ? blocks : 4096)), config.blockDim = dim3(THREADS);
    config.stream = q->stream;
    return cudaLaunchKernelEx(&config, ndp_rank_sum_kernel<T>, b, count);
}

cudaError_t launch_of(ndp_dtype type, ndp_queue *q, const Buffers &b, int64_t count) {
    switch (type) {
    case NDP_F32:
        return launch<float>(q, b, count);
    case NDP_F64:
        return launch<double>(q, b, count);
    case NDP_I64:
        return launch<int64_t>(q, b, count);
    default:
        return launch<__nv_bfloat16>(q, b, count);
    }
}

} // namespace

ndp_status ndp_gpu_sum(ndp_queue *q, const ndp_rank_sum *s) {
    if (q->context->failed)
        return q->context->failed;
    if (s->ranks < 1 || s->ranks > NDP_MOST_SUMMED || s->outs > NDP_MOST_SUMMED)
        return NDP_FAIL(NDP_ENOTSUP, "a sum of %d ranks on one GPU: at most %d", s->ranks, NDP_MOST_SUMMED);
    Buffers b = {{}, {}, s->ranks, s->outs, s->max, s->accumulate};
    for (int r = 0; r < s->ranks; r++)
        b.in[r] = s->in[r];
    for (int k = 0; k < s->outs; k++)
        b.out[k] = s->out[k];
    cudaError_t e = s->count > 0 ? launch_of((ndp_dtype)s->type, q, b, s->count) : cudaSuccess;
    return e == cudaSuccess ? NDP_OK : ndp_gpu_failed(q->context, e, "a sum of ranks' buffers");
}
