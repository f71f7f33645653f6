/* reduce_sum. */
#include "ops/cuda/cuda_kernel.cuh"
#include "ops/cuda/cuda_kernels.hpp"

static __device__ __forceinline__ double wide(const ndp_view &x, int64_t i) {
    int64_t r = i / x.cols, c = i - r * x.cols;
    return x.dtype == NDP_F64 ? ((const double *)x.data)[r * x.ld + c] : (double)ndp_get(x, r, c);
}

/* One block loads, a thread for each column adds: fp64 sums in another order are other sums. */
static __global__ void ndp_reduce_sum_kernel(ndp_view x, ndp_view weights, double *sum, bool add) {
    double *room = (double *)ndp_shared_bytes, total = 0;
    int cols = (int)x.cols, rows = (int)blockDim.x / cols, own = threadIdx.x;
    if (own < cols && add)
        total = sum[own];
    for (int64_t t = 0; t < x.rows; t += rows) {
        int n = x.rows - t < rows ? (int)(x.rows - t) : rows;
        if (own < n * cols)
            room[own] = wide(x, t * cols + own) * (weights.data ? wide(weights, t + own / cols) : 1);
        __syncthreads();
#pragma unroll 8
        for (int i = 0; own < cols && i < n; i++)
            total += room[i * cols + own];
        __syncthreads();
    }
    if (own < cols)
        sum[own] = total;
}
static ndp_status run_reduce_sum(const ndp_op_call *c) {
    unsigned threads = ndp_block_of(c->in[0].rows * c->in[0].cols, NDP_MAX_THREADS);
    return ndp_launch(c, ndp_reduce_sum_kernel, dim3(1), dim3(threads), threads * sizeof(double), c->in[0],
                      c->in[1], (double *)c->out[0].data, c->attr->accumulate);
}
NDP_CUDA_KERNEL(reduce_sum)
