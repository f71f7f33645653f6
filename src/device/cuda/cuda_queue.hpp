/* A context and a queue of the devices `cuda` and `sim`, as their kernels see them. */
#ifndef NDP_DEVICE_CUDA_CUDA_QUEUE_HPP
#define NDP_DEVICE_CUDA_CUDA_QUEUE_HPP

#include "device/cuda/cuda_memory.hpp"

extern "C" {
#include "device/device.h"
}
#include <cuda_runtime.h>

#include <memory>

/* What kernels keep from call to call. */
struct ndp_cuda_kept {
    virtual ~ndp_cuda_kept() = default;
};

struct ndp_device_context {
    const ndp_device *device;
    int gpu;
    ndp_status failed; /* of the first error */
    ndp_gpu_way memory = NDP_GPU_UNDECIDED;
    /* Handle and plans of matrix products: made by the first one, destroyed with the context. One thread at a time
     * works with a context. */
    std::unique_ptr<ndp_cuda_kept> products = nullptr;
};

/* Marks use events in turn. One that is recorded again before it was waited for means more work than was asked
 * for, all of it submitted before the wait, so nothing can deadlock. */
enum { NDP_QUEUE_EVENTS = 64 };

struct ndp_queue {
    ndp_device_context *context;
    cudaStream_t stream;
    cudaEvent_t events[NDP_QUEUE_EVENTS];
    unsigned marks; /* so far */
};

/* Reports the error `e` of `what` and returns its status. The context is then unusable, as CUDA's is: all that is done
 * with it later returns the same status and adds no message. */
ndp_status ndp_gpu_failed(ndp_device_context *c, cudaError_t e, const char *what);

#endif
