/* A context and a queue of the devices `cuda` and `sim`, as their kernels see them. */
#ifndef NDP_DEVICE_CUDA_CUDA_QUEUE_HPP
#define NDP_DEVICE_CUDA_CUDA_QUEUE_HPP

#include <cuda_runtime.h>

#include <memory>

struct ndp_device;

/* What kernels keep from call to call. */
struct ndp_cuda_kept {
    virtual ~ndp_cuda_kept() = default;
};

struct ndp_device_context {
    const ndp_device *device;
    int gpu;
    /* Handle and plans of matrix products: made by the first one, destroyed with the context. One thread at a time
     * works with a context. */
    std::unique_ptr<ndp_cuda_kept> products;
};

struct ndp_queue {
    ndp_device_context *context;
    cudaStream_t stream;
};

#endif
