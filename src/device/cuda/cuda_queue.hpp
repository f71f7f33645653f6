/* A context and a queue of the devices `cuda` and `sim`, as their kernels see them. */
#ifndef NDP_DEVICE_CUDA_CUDA_QUEUE_HPP
#define NDP_DEVICE_CUDA_CUDA_QUEUE_HPP

#include "device/cuda/cuda_memory.hpp"

extern "C" {
#include "device/device.h"
}
#include <cuda_runtime.h>

#include <memory>
#include <set>

/* What kernels keep from call to call. */
struct ndp_cuda_kept {
    virtual ~ndp_cuda_kept() = default;
};

struct ndp_device_context {
    const ndp_device *device;
    int gpu;
    bool first;        /* no rank of this node with a lower number uses the GPU */
    ndp_status failed; /* of the first error */
    ndp_gpu_way memory = NDP_GPU_UNDECIDED;
    size_t shared = 0;                   /* bytes of shared memory that a block of this GPU can have */
    std::set<const void *> widened = {}; /* kernels that may have all of them (ndp_gpu_widen) */
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

/* Every kernel may have so many bytes of shared memory; for more it has to be widened. */
enum { NDP_SHARED_FREE = 48 << 10 };
/* Lets a kernel have as much dynamic shared memory as a block of the GPU can have. CUDA keeps that limit for a GPU and
 * the whole process: ranks that are threads share it, so all of them set the same, once for each kernel, and none
 * lowers it between another one's call and its launch. NDP_ENOTSUP: a block cannot have `bytes`; `what` needs them. */
ndp_status ndp_gpu_widen(ndp_device_context *c, const void *kernel, size_t bytes, const char *what);

#endif
