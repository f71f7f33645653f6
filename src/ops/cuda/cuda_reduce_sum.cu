/* reduce_sum. */
#include "ops/cuda/cuda_kernel.cuh"
#include "ops/cuda/cuda_kernels.hpp"

/* One block loads, one thread adds: fp64 sums in another order are other sums. */
static __global__ void ndp_reduce_sum_kernel(ndp_view x, double *sum, bool add) {
    float *room = (float *)ndp_shared_bytes;
    double total = add ? *sum : 0.0;
    for (int64_t t = 0; t < x.rows; t += blockDim.x) {
        if (t + threadIdx.x < x.rows)
            room[threadIdx.x] = ndp_get(x, t + threadIdx.x, 0);
        __syncthreads();
        int n = x.rows - t < blockDim.x ? (int)(x.rows - t) : (int)blockDim.x;
#pragma unroll 8
        for (int i = 0; threadIdx.x == 0 && i < n; i++)
            total += (double)room[i];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        *sum = total;
}
static ndp_status run_reduce_sum(const ndp_op_call *c) {
    unsigned threads = ndp_block_of(c->in[0].rows, NDP_MAX_THREADS);
    return ndp_launch(c, ndp_reduce_sum_kernel, dim3(1), dim3(threads), threads * sizeof(float), c->in[0],
                      (double *)c->out[0].data, c->attr->accumulate);
}
NDP_CUDA_KERNEL(reduce_sum)
