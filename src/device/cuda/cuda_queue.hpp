/* A queue of the devices `cuda` and `sim`, as their kernels see it. */
#ifndef NDP_DEVICE_CUDA_CUDA_QUEUE_HPP
#define NDP_DEVICE_CUDA_CUDA_QUEUE_HPP

#include <cuda_runtime.h>

struct ndp_device_context;

struct ndp_queue {
    ndp_device_context *context;
    cudaStream_t stream;
};

#endif
