/* The device of CUDA: contexts, memory, queues, copies, marks. A rank works on one GPU, in whatever thread it is. */
#include "device/cuda/cuda_device.hpp"
#include "device/cuda/cuda_queue.hpp"

extern "C" {
#include "base/status.h"
}
#include <new>

#define CUDA_TRY(expr, ...)                                                                                            \
    do {                                                                                                               \
        cudaError_t error_ = (expr);                                                                                   \
        if (error_ != cudaSuccess)                                                                                     \
            return failed(error_, __VA_ARGS__);                                                                        \
    } while (0)

static ndp_status failed(cudaError_t e, const char *what) {
    ndp_status code = e == cudaErrorMemoryAllocation ? NDP_ENOMEM : NDP_EIO;
    return NDP_FAIL(code, "%s: %s", what, cudaGetErrorString(e));
}

ndp_status ndp_gpu_open(const ndp_device *d, const ndp_device_opts *opts, ndp_device_context **out) {
    int gpus = 0;
    CUDA_TRY(cudaGetDeviceCount(&gpus), "counting GPUs");
    ndp_device_context *c = new (std::nothrow) ndp_device_context{d, opts->local_rank % gpus, nullptr};
    if (!c)
        return NDP_FAIL(NDP_ENOMEM, "no memory for the device %s", d->name);
    cudaError_t e = cudaSetDevice(c->gpu);
    if (e != cudaSuccess) {
        delete c;
        return failed(e, "opening a GPU");
    }
    *out = c;
    return NDP_OK;
}

void ndp_gpu_close(ndp_device_context *c) { delete c; }

ndp_status ndp_gpu_memory_map(ndp_device_context *c, size_t bytes, ndp_memory_kind kind, void **out) {
    CUDA_TRY(cudaSetDevice(c->gpu), "choosing a GPU");
    if (kind == NDP_MEMORY_HOST) {
        CUDA_TRY(cudaHostAlloc(out, bytes ? bytes : 1, cudaHostAllocDefault), "allocating pinned memory");
        memset(*out, 0, bytes);
        return NDP_OK;
    }
    CUDA_TRY(cudaMalloc(out, bytes ? bytes : 1), "allocating memory of the GPU");
    CUDA_TRY(cudaMemsetAsync(*out, 0, bytes, nullptr), "clearing memory of the GPU");
    CUDA_TRY(cudaStreamSynchronize(nullptr), "clearing memory of the GPU");
    return NDP_OK;
}

void ndp_gpu_memory_unmap(ndp_device_context *c, void *data, size_t bytes, ndp_memory_kind kind) {
    (void)c, (void)bytes;
    if (data && kind == NDP_MEMORY_HOST)
        cudaFreeHost(data);
    else if (data)
        cudaFree(data);
}

ndp_status ndp_gpu_queue_create(ndp_device_context *c, ndp_queue **out) {
    ndp_queue *q = new (std::nothrow) ndp_queue{c, nullptr};
    if (!q)
        return NDP_FAIL(NDP_ENOMEM, "no memory for a queue");
    cudaError_t e = cudaStreamCreateWithFlags(&q->stream, cudaStreamNonBlocking);
    if (e != cudaSuccess) {
        delete q;
        return failed(e, "creating a stream");
    }
    *out = q;
    return NDP_OK;
}

void ndp_gpu_queue_destroy(ndp_queue *q) {
    if (!q)
        return;
    cudaStreamDestroy(q->stream);
    delete q;
}

ndp_status ndp_gpu_copy(ndp_queue *q, void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                        size_t rows) {
    if (width == 0 || rows == 0)
        return NDP_OK;
    if (rows == 1)
        CUDA_TRY(cudaMemcpyAsync(to, from, width, cudaMemcpyDefault, q->stream), "copying");
    else
        CUDA_TRY(cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, rows, cudaMemcpyDefault, q->stream),
                 "copying rows");
    return NDP_OK;
}

ndp_status ndp_gpu_mark(ndp_queue *q, ndp_mark *out) {
    cudaEvent_t e;
    CUDA_TRY(cudaEventCreateWithFlags(&e, cudaEventDisableTiming), "creating an event");
    CUDA_TRY(cudaEventRecord(e, q->stream), "recording an event");
    out->state = e;
    return NDP_OK;
}

ndp_status ndp_gpu_after(ndp_queue *q, const ndp_mark *mark) {
    cudaEvent_t e = (cudaEvent_t)mark->state;
    CUDA_TRY(cudaStreamWaitEvent(q->stream, e, 0), "waiting for an event");
    cudaEventDestroy(e);
    return NDP_OK;
}

ndp_status ndp_gpu_drain(ndp_queue *q) {
    CUDA_TRY(cudaStreamSynchronize(q->stream), "a kernel or copy");
    return NDP_OK;
}
