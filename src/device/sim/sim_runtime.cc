/* CUDA's runtime for `sim`: memory of the host, and streams that execute what was submitted when somebody waits for
 * them. So the host, or another stream, that reads a result without waiting finds the memory as it was. */
#include "device/sim/sim_runtime.hpp"
#include "device/sim/sim_block.hpp"

#include <atomic>
#include <cstdlib>
#include <deque>
#include <mutex>

/* A stream's operations are numbered from 0; those below `done` have run. */
struct ndp_sim_stream {
    std::deque<std::function<void()>> waiting;
    size_t done, submitted;
};
/* Everything that was submitted to the stream before operation `before`. NULL: never recorded. */
struct ndp_sim_event {
    cudaStream_t stream;
    size_t before;
};

static std::atomic<long> allocations;
static thread_local cudaError_t last_error;
static thread_local std::string last_message;

long ndp_sim_allocations(void) { return allocations; }

static cudaError_t fail(cudaError_t e, const std::string &message) {
    if (last_error == cudaSuccess)
        last_error = e, last_message = message;
    return e;
}

cudaError_t cudaGetLastError(void) {
    cudaError_t e = last_error;
    last_error = cudaSuccess;
    return e;
}
cudaError_t cudaPeekAtLastError(void) { return last_error; }
const char *cudaGetErrorName(cudaError_t e) { return e == cudaSuccess ? "cudaSuccess" : "cudaError"; }
const char *cudaGetErrorString(cudaError_t e) {
    return e == cudaSuccess ? "no error" : last_message.empty() ? "an error" : last_message.c_str();
}

/* ---- devices and memory ---- */

cudaError_t cudaDriverGetVersion(int *version) {
    *version = 13000;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int *n) {
    *n = 1;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
    return device == 0 ? cudaSuccess : fail(cudaErrorInvalidValue, "sim has one device");
}
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int) {
    *value = attribute == cudaDevAttrMultiProcessorCount ? 4 : 9;
    return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t *free, size_t *total) {
    *free = *total = (size_t)64 << 30;
    return cudaSuccess;
}

static cudaError_t take(void **data, size_t bytes) {
    allocations++;
    *data = aligned_alloc(256, (bytes + 255) / 256 * 256 + (bytes == 0) * 256);
    return *data ? cudaSuccess : fail(cudaErrorMemoryAllocation, "out of memory");
}
cudaError_t cudaMalloc(void **data, size_t bytes) { return take(data, bytes); }
cudaError_t cudaHostAlloc(void **data, size_t bytes, unsigned) { return take(data, bytes); }
cudaError_t cudaFree(void *data) {
    free(data);
    return cudaSuccess;
}
cudaError_t cudaFreeHost(void *data) { return cudaFree(data); }

/* ---- streams ---- */

/* Executes the stream's operations below `end`; they may execute those of other streams. */
static void flush(cudaStream_t s, size_t end) {
    while (s->done < end && !s->waiting.empty()) {
        std::function<void()> op = std::move(s->waiting.front());
        s->waiting.pop_front();
        s->done++;
        op();
    }
}

/* The default stream (NULL) executes at once; nothing here submits to it while other streams have work. */
static cudaError_t submit(cudaStream_t s, std::function<void()> op) {
    if (!s) {
        op();
        return cudaSuccess;
    }
    s->waiting.push_back(std::move(op));
    s->submitted++;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned) {
    *s = new ndp_sim_stream{};
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t s) {
    flush(s, s->submitted);
    delete s;
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
    if (s)
        flush(s, s->submitted);
    return last_error;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned) {
    ndp_sim_event now = *e; /* what it means at this call */
    return now.stream ? submit(s, [now] { flush(now.stream, now.before); }) : cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned) {
    *e = new ndp_sim_event{};
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t e) {
    delete e;
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
    *e = {s, s->submitted};
    return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
    if (e->stream)
        flush(e->stream, e->before);
    return last_error;
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t rows,
                              cudaMemcpyKind, cudaStream_t s) {
    if (rows > 1 && (to_pitch < width || from_pitch < width))
        return fail(cudaErrorInvalidValue, "a pitch is smaller than the width");
    return submit(s, [=] {
        for (size_t r = 0; r < rows; r++)
            memmove((char *)to + r * to_pitch, (const char *)from + r * from_pitch, width);
    });
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t s) {
    return cudaMemcpy2DAsync(to, bytes, from, bytes, bytes, 1, kind, s);
}
cudaError_t cudaMemsetAsync(void *data, int byte, size_t bytes, cudaStream_t s) {
    return submit(s, [=] { memset(data, byte, bytes); });
}

cudaError_t ndp_sim_launch(const cudaLaunchConfig_t *c, std::function<void()> body) {
    unsigned threads = c->blockDim.x * c->blockDim.y * c->blockDim.z;
    size_t blocks = (size_t)c->gridDim.x * c->gridDim.y * c->gridDim.z;
    if (threads == 0 || threads > 1024 || blocks == 0 || c->gridDim.y > 65535 || c->gridDim.z > 65535 ||
        c->gridDim.x > 0x7fffffffu || c->dynamicSmemBytes > (227 << 10))
        return fail(cudaErrorInvalidValue, "a launch of " + std::to_string(blocks) + " blocks of " +
                                               std::to_string(threads) + " threads with " +
                                               std::to_string(c->dynamicSmemBytes) + " bytes of shared memory");
    const char *order = getenv("NDP_SIM_ORDER");
    bool down = order && strcmp(order, "down") == 0;
    cudaLaunchConfig_t config = *c;
    return submit(c->stream, [=] {
        std::string wrong = ndp_sim_run(config, body, down);
        if (!wrong.empty())
            fail(cudaErrorLaunchFailure, wrong);
    });
}
