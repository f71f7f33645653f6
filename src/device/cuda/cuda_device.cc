/* The device of CUDA: contexts, memory, queues, copies, marks. A rank works on one GPU, in the thread that opened it.
 */
#include "device/cuda/cuda_device.hpp"
#include "device/cuda/cuda_choice.hpp"
#include "device/cuda/cuda_queue.hpp"
#include "device/cuda/cuda_word.hpp"

extern "C" {
#include "base/status.h"
}
#include <atomic>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

/* Returns if a call to CUDA for context `c` fails; `what` is it that failed. */
#define CUDA_TRY(c, what, expr)                                                                                        \
    do {                                                                                                               \
        cudaError_t error_ = (expr);                                                                                   \
        if (error_ != cudaSuccess)                                                                                     \
            return ndp_gpu_failed((c), error_, (what));                                                                \
    } while (0)

ndp_status ndp_gpu_failed(ndp_device_context *c, cudaError_t e, const char *what) {
    if (!c->failed)
        c->failed =
            NDP_FAIL(NDP_EIO, "%s on GPU %d: %s (%s)", what, c->gpu, cudaGetErrorString(e), cudaGetErrorName(e));
    return c->failed;
}

/* ---- opening ---- */

/* The NUMA node of a GPU; -1: unknown. */
static int numa_node(int gpu) {
    char id[32], path[96];
    int node = -1;
    if (cudaDeviceGetPCIBusId(id, sizeof id, gpu) != cudaSuccess)
        return -1;
    for (char *c = id; *c; c++)
        *c = (char)tolower(*c);
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/numa_node", id);
    FILE *file = fopen(path, "r");
    if (file && fscanf(file, "%d", &node) != 1)
        node = -1;
    if (file)
        fclose(file);
    return node;
}

static ndp_status choose(const ndp_device_opts *opts, int *gpu, bool *first) {
    int gpus = 0, ranks = opts->node_ranks > 0 ? opts->node_ranks : 1;
    cudaError_t e = cudaGetDeviceCount(&gpus);
    if (e != cudaSuccess || gpus < 1)
        return NDP_FAIL(NDP_ENOTSUP, "no GPU is visible on this machine: %s", cudaGetErrorString(e));
    if (ranks > gpus && !opts->share) {
        const char *visible = getenv("CUDA_VISIBLE_DEVICES");
        return NDP_FAIL(
            NDP_EINVAL,
            "%d ranks on this machine need %d GPUs, and it has %d%s%s: start at most %d ranks on it, or let "
            "ranks share a GPU (train.share_gpu: true), which is slow",
            ranks, ranks, gpus, visible ? " in CUDA_VISIBLE_DEVICES=" : "", visible ? visible : "", gpus);
    }
    std::vector<int> nodes((size_t)gpus, -1);
    for (int i = 0; i < gpus && ranks > 1; i++)
        nodes[(size_t)i] = numa_node(i);
    *gpu = ndp_gpu_of_rank(opts->local_rank, ranks, nodes.data(), gpus);
    *first = true;
    for (int rank = 0; rank < opts->local_rank; rank++)
        *first &= ndp_gpu_of_rank(rank, ranks, nodes.data(), gpus) != *gpu;
    return NDP_OK;
}

static ndp_status use(ndp_device_context *c) {
    int major = 0, minor = 0, shared = 0;
    CUDA_TRY(c, "opening", cudaSetDevice(c->gpu));
    CUDA_TRY(c, "opening", cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, c->gpu));
    CUDA_TRY(c, "opening", cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, c->gpu));
    CUDA_TRY(c, "opening", cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, c->gpu));
    c->shared = (size_t)shared;
    if (major < 8)
        return NDP_FAIL(NDP_ENOTSUP, "GPU %d has compute capability %d.%d, and the kernels need 8.0 or more (Ampere)",
                        c->gpu, major, minor);
    return NDP_OK;
}

static std::atomic<long> opens;
long ndp_gpu_opens(void) { return opens; }
static std::atomic<long> host_waits;
long ndp_gpu_host_waits(void) { return host_waits; }

ndp_status ndp_gpu_open(const ndp_device *d, const ndp_device_opts *opts, ndp_device_context **out) {
    int gpu = 0;
    bool first = false;
    NDP_TRY(choose(opts, &gpu, &first));
    ndp_device_context *c = new (std::nothrow) ndp_device_context{d, gpu, first, NDP_OK};
    if (!c)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for the device %s", d->name);
    ndp_status st = use(c);
    if (st != NDP_OK) {
        delete c;
        return st;
    }
    opens++;
    *out = c;
    return NDP_OK;
}

void ndp_gpu_close(ndp_device_context *c) { delete c; }

void ndp_gpu_bus_id(ndp_device_context *c, char text[NDP_DEVICE_NAME]) {
    if (!c->first)
        text[0] = '\0';
    else if (cudaDeviceGetPCIBusId(text, NDP_DEVICE_NAME, c->gpu) != cudaSuccess)
        snprintf(text, NDP_DEVICE_NAME, "unknown"); /* which no library finds */
}

/* ---- memory ---- */

static ndp_status map_pinned(size_t bytes, void **out) {
    cudaError_t e = cudaHostAlloc(out, bytes ? bytes : 1, cudaHostAllocDefault);
    if (e != cudaSuccess) {
        cudaGetLastError();
        return NDP_FAIL(NDP_ENOMEM, "cannot pin %zu bytes of this machine's memory: %s (is `ulimit -l` too low?)",
                        bytes, cudaGetErrorString(e));
    }
    memset(*out, 0, bytes);
    return NDP_OK;
}

/* Memory that cannot be had is not an error of the context: a smaller piece may fit. */
ndp_status ndp_gpu_memory_map(ndp_device_context *c, size_t bytes, ndp_memory_kind kind, void **out) {
    if (c->failed)
        return c->failed;
    CUDA_TRY(c, "choosing the GPU", cudaSetDevice(c->gpu));
    if (kind == NDP_MEMORY_HOST)
        return map_pinned(bytes, out);
    void *data;
    NDP_TRY(ndp_gpu_take(c->gpu, bytes, &c->memory, &data));
    cudaError_t e = cudaMemsetAsync(data, 0, bytes, nullptr);
    if (e == cudaSuccess)
        e = cudaStreamSynchronize(nullptr);
    if (e != cudaSuccess) {
        ndp_gpu_give(c->gpu, data, bytes, c->memory);
        return ndp_gpu_failed(c, e, "clearing memory");
    }
    *out = data;
    return NDP_OK;
}

/* What was written around a guarded piece is an error of the context: nothing returns it here, the next call does. */
void ndp_gpu_memory_unmap(ndp_device_context *c, void *data, size_t bytes, ndp_memory_kind kind) {
    if (data && kind == NDP_MEMORY_HOST)
        cudaFreeHost(data);
    const char *wrong = data && kind == NDP_MEMORY_DEVICE ? ndp_gpu_give(c->gpu, data, bytes, c->memory) : nullptr;
    if (wrong && !c->failed)
        c->failed = NDP_FAIL(NDP_EBUG, "GPU %d: %s", c->gpu, wrong);
}

/* ---- queues ---- */

static cudaError_t create_queue(ndp_queue *q, bool urgent) {
    int least = 0, greatest = 0;
    cudaError_t e = cudaDeviceGetStreamPriorityRange(&least, &greatest);
    if (e == cudaSuccess)
        e = cudaStreamCreateWithPriority(&q->stream, cudaStreamNonBlocking, urgent ? greatest : least);
    for (int i = 0; i < NDP_QUEUE_EVENTS && e == cudaSuccess; i++)
        e = cudaEventCreateWithFlags(&q->events[i], cudaEventDisableTiming);
    return e;
}

static ndp_status create(ndp_device_context *c, bool urgent, ndp_queue **out) {
    if (c->failed)
        return c->failed;
    CUDA_TRY(c, "choosing the GPU", cudaSetDevice(c->gpu));
    ndp_queue *q = new (std::nothrow) ndp_queue{};
    if (!q)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for a queue");
    q->context = c;
    cudaError_t e = create_queue(q, urgent);
    if (e != cudaSuccess) {
        ndp_gpu_queue_destroy(q);
        return ndp_gpu_failed(c, e, "creating a queue");
    }
    *out = q;
    return NDP_OK;
}

ndp_status ndp_gpu_queue_create(ndp_device_context *c, ndp_queue **out) { return create(c, false, out); }
ndp_status ndp_gpu_urgent_queue_create(ndp_device_context *c, ndp_queue **out) { return create(c, true, out); }

void ndp_gpu_queue_destroy(ndp_queue *q) {
    if (!q)
        return;
    for (cudaEvent_t e : q->events)
        if (e)
            cudaEventDestroy(e);
    if (q->stream)
        cudaStreamDestroy(q->stream);
    delete q;
}

ndp_status ndp_gpu_copy(ndp_queue *q, void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                        size_t rows) {
    if (q->context->failed)
        return q->context->failed;
    if (width == 0 || rows == 0)
        return NDP_OK;
    if (rows == 1)
        CUDA_TRY(q->context, "a copy", cudaMemcpyAsync(to, from, width, cudaMemcpyDefault, q->stream));
    else
        CUDA_TRY(q->context, "a copy of rows",
                 cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, rows, cudaMemcpyDefault, q->stream));
    return NDP_OK;
}

ndp_status ndp_gpu_mark(ndp_queue *q, ndp_mark *out) {
    if (q->context->failed)
        return q->context->failed;
    cudaEvent_t e = q->events[q->marks++ % NDP_QUEUE_EVENTS];
    CUDA_TRY(q->context, "a mark", cudaEventRecord(e, q->stream));
    out->state = e;
    return NDP_OK;
}

ndp_status ndp_gpu_after(ndp_queue *q, const ndp_mark *mark) {
    if (q->context->failed)
        return q->context->failed;
    CUDA_TRY(q->context, "waiting for a mark", cudaStreamWaitEvent(q->stream, (cudaEvent_t)mark->state, 0));
    return NDP_OK;
}

ndp_status ndp_gpu_drain(ndp_queue *q) {
    if (q->context->failed)
        return q->context->failed;
    host_waits++;
    CUDA_TRY(q->context, "a kernel or copy", cudaStreamSynchronize(q->stream));
    return NDP_OK;
}

ndp_status ndp_gpu_passed(ndp_queue *q, const ndp_mark *mark, bool *out) {
    if (q->context->failed)
        return q->context->failed;
    cudaError_t e = cudaEventQuery((cudaEvent_t)mark->state);
    *out = e == cudaSuccess;
    return e == cudaErrorNotReady ? NDP_OK : *out ? NDP_OK : ndp_gpu_failed(q->context, e, "a kernel or copy");
}

/* ---- times ---- */

ndp_status ndp_gpu_stamp_create(ndp_device_context *c, ndp_stamp *out) {
    if (c->failed)
        return c->failed;
    cudaEvent_t e;
    CUDA_TRY(c, "choosing the GPU", cudaSetDevice(c->gpu));
    CUDA_TRY(c, "creating a stamp", cudaEventCreateWithFlags(&e, cudaEventDefault));
    *out = {e, 0};
    return NDP_OK;
}

void ndp_gpu_stamp_destroy(ndp_stamp *s) {
    if (s->event)
        cudaEventDestroy((cudaEvent_t)s->event);
    s->event = nullptr;
}

ndp_status ndp_gpu_stamp(ndp_queue *q, ndp_stamp *s) {
    if (q->context->failed)
        return q->context->failed;
    CUDA_TRY(q->context, "a stamp", cudaEventRecord((cudaEvent_t)s->event, q->stream));
    return NDP_OK;
}

ndp_status ndp_gpu_between(ndp_device_context *c, const ndp_stamp *from, const ndp_stamp *to, double *seconds) {
    float ms = 0;
    if (c->failed)
        return c->failed;
    CUDA_TRY(c, "reading a stamp", cudaEventElapsedTime(&ms, (cudaEvent_t)from->event, (cudaEvent_t)to->event));
    *seconds = 1e-3 * (double)ms;
    return NDP_OK;
}

ndp_status ndp_gpu_write_word_on(ndp_queue *q, uint32_t *word, uint32_t value) {
    if (q->context->failed)
        return q->context->failed;
    cudaError_t e = ndp_gpu_write_word(q->stream, word, value);
    if (e == cudaErrorNotSupported)
        return NDP_FAIL(NDP_ENOTSUP, "GPU %d cannot write words of the host's memory", q->context->gpu);
    CUDA_TRY(q->context, "writing a word", e);
    return NDP_OK;
}

ndp_status ndp_gpu_widen(ndp_device_context *c, const void *kernel, size_t bytes, const char *what) {
    if (c->failed)
        return c->failed;
    if (bytes > c->shared)
        return NDP_FAIL(NDP_ENOTSUP, "%s: a block needs %zu bytes of shared memory, and on GPU %d it can have %zu",
                        what, bytes, c->gpu, c->shared);
    if (c->widened.count(kernel))
        return NDP_OK;
    CUDA_TRY(c, what, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)c->shared));
    c->widened.insert(kernel);
    return NDP_OK;
}

void *ndp_gpu_stream(ndp_queue *q) { return q->stream; }

ndp_status ndp_gpu_memory(ndp_device_context *c, size_t *free, size_t *total) {
    if (c->failed)
        return c->failed;
    CUDA_TRY(c, "choosing the GPU", cudaSetDevice(c->gpu));
    CUDA_TRY(c, "asking for free memory", cudaMemGetInfo(free, total));
    return NDP_OK;
}
