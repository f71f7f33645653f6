/* The part of CUDA's runtime that the kernels and the device use, executed by the host: `sim` is the device `cuda`
 * compiled as C++ against this header instead of NVIDIA's. It needs no GPU and no toolkit, and finds what a GPU hides:
 * missing barriers, lanes that do not meet, reads past the end, waits that are missing.
 *
 * A kernel's block runs on one thread of the host. Each of its threads is a fiber (sim_block.cc) that runs until it
 * waits for others. Streams execute nothing before they are waited for, so work that is not waited for is visibly
 * missing. Declarations are those of CUDA 12; where a member or a function is not used here, it does not exist. */
#ifndef NDP_SIM_CUDA_RUNTIME_H
#define NDP_SIM_CUDA_RUNTIME_H

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>

#define __global__ __attribute__((visibility("default"))) /* so that errors can name it */
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __restrict__ __restrict
/* One copy for each thread of the host, which executes one block at a time. */
#define __shared__ thread_local
#define __align__(n) __attribute__((aligned(n)))

/* ---- in kernels ---- */

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
extern thread_local uint3 threadIdx, blockIdx;
extern thread_local dim3 blockDim, gridDim;
enum { warpSize = 32 };

struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

/* Meetings of threads. `what` names the operation in errors. */
void ndp_sim_sync_block(void);
void ndp_sim_sync_warp(unsigned mask, const char *what);
/* Meets the lanes in `mask`, and returns the 8 bytes that lane `from` brings; of a lane that is not in it, a NaN. */
uint64_t ndp_sim_exchange(unsigned mask, uint64_t mine, int from, const char *what);
/* Meets the lanes in `mask`, and returns a bit for each: its predicate. */
unsigned ndp_sim_ballot(unsigned mask, bool predicate);
/* This thread's lane, from 0. */
int ndp_sim_lane(void);
/* The whole warp: d += a b, of fragments as mma.m16n8k16 lays them out, bf16 with fp32 sums (ops/cuda/cuda_mma.cuh). */
void ndp_sim_mma_16816(float d[4], const unsigned a[4], const unsigned b[2]);
/* cp.async of 16 bytes: the first `bytes`, then zeros. Nothing is written before the thread waits for its groups, all
 * but the `newest`, so a kernel that does not wait finds what was there. */
void ndp_sim_copy_async(void *to, const void *from, int bytes);
void ndp_sim_copies_commit(void);
void ndp_sim_copies_wait(int newest);

static inline void __syncthreads(void) { ndp_sim_sync_block(); }
static inline void __syncwarp(unsigned mask = 0xffffffffu) { ndp_sim_sync_warp(mask, "__syncwarp"); }

/* The value of lane `from` if it is one of first .. end - 1, else the lane's own. */
template <typename T>
static inline T ndp_sim_shuffle(unsigned mask, T x, int from, int first, int end, const char *what) {
    static_assert(sizeof(T) <= 8, "shuffles move at most 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &x, sizeof x);
    bits = ndp_sim_exchange(mask, bits, from >= first && from < end ? from : ndp_sim_lane(), what);
    memcpy(&x, &bits, sizeof x);
    return x;
}
template <typename T> static inline T __shfl_sync(unsigned mask, T x, int from, int width = 32) {
    int first = ndp_sim_lane() / width * width;
    return ndp_sim_shuffle(mask, x, first + (from & (width - 1)), first, first + width, "__shfl_sync");
}
template <typename T> static inline T __shfl_xor_sync(unsigned mask, T x, int with, int width = 32) {
    int end = (ndp_sim_lane() / width + 1) * width; /* it reaches earlier groups, but no later ones */
    return ndp_sim_shuffle(mask, x, ndp_sim_lane() ^ with, 0, end, "__shfl_xor_sync");
}
template <typename T> static inline T __shfl_down_sync(unsigned mask, T x, unsigned by, int width = 32) {
    int first = ndp_sim_lane() / width * width;
    return ndp_sim_shuffle(mask, x, ndp_sim_lane() + (int)by, first, first + width, "__shfl_down_sync");
}
template <typename T> static inline T __shfl_up_sync(unsigned mask, T x, unsigned by, int width = 32) {
    int first = ndp_sim_lane() / width * width;
    return ndp_sim_shuffle(mask, x, ndp_sim_lane() - (int)by, first, first + width, "__shfl_up_sync");
}
static inline unsigned __ballot_sync(unsigned mask, bool p) { return ndp_sim_ballot(mask, p); }
static inline int __any_sync(unsigned mask, bool p) { return ndp_sim_ballot(mask, p) != 0; }
static inline int __all_sync(unsigned mask, bool p) { return ndp_sim_ballot(mask, p) == mask; }

static inline float __int_as_float(int x) {
    float f;
    memcpy(&f, &x, 4);
    return f;
}
static inline int __float_as_int(float f) {
    int x;
    memcpy(&x, &f, 4);
    return x;
}
static inline unsigned __float_as_uint(float f) { return (unsigned)__float_as_int(f); }
static inline float __uint_as_float(unsigned x) { return __int_as_float((int)x); }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline float __fdividef(float a, float b) { return a / b; } /* a GPU: to 2 ulp, 0 where b is 2^126 or more */
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
using std::max;
using std::min;

/* ---- on the host ---- */

typedef enum cudaError {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorNoDevice = 100,
    cudaErrorNotReady = 600,
    cudaErrorNotSupported = 801,
    cudaErrorLaunchFailure = 719
} cudaError_t;
typedef struct ndp_sim_stream *cudaStream_t;
typedef struct ndp_sim_event *cudaEvent_t;
typedef enum cudaMemcpyKind { cudaMemcpyDefault = 4 } cudaMemcpyKind;
enum { cudaStreamNonBlocking = 1, cudaEventDefault = 0, cudaEventDisableTiming = 2, cudaHostAllocDefault = 0 };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
enum cudaDeviceAttr {
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97
};

/* The last error of this thread, and its text, which names the kernel, block and thread. */
cudaError_t cudaGetLastError(void);
cudaError_t cudaPeekAtLastError(void);
const char *cudaGetErrorString(cudaError_t e);
const char *cudaGetErrorName(cudaError_t e);

cudaError_t cudaDriverGetVersion(int *version); /* 1000 * major + 10 * minor */
cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaGetDeviceCount(int *n);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaDeviceReset(void);
cudaError_t cudaDeviceGetPCIBusId(char *id, int length, int device);
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device);
cudaError_t cudaMemGetInfo(size_t *free, size_t *total);
cudaError_t cudaMalloc(void **data, size_t bytes);
cudaError_t cudaFree(void *data);
cudaError_t cudaHostAlloc(void **data, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void *data);

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest); /* as numbers, the greatest is below */
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int priority);
cudaError_t cudaStreamGetPriority(cudaStream_t s, int *priority);
static inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags) {
    return cudaStreamCreateWithPriority(s, flags, 0);
}
cudaError_t cudaStreamDestroy(cudaStream_t s);
cudaError_t cudaStreamSynchronize(cudaStream_t s);
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t e);
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s);
cudaError_t cudaEventSynchronize(cudaEvent_t e);
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to); /* of events that have been reached */
cudaError_t cudaEventQuery(cudaEvent_t e); /* runs what the event waits for, and so never answers cudaErrorNotReady */
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t s);
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t rows,
                              cudaMemcpyKind kind, cudaStream_t s);
cudaError_t cudaMemsetAsync(void *data, int byte, size_t bytes, cudaStream_t s);

typedef struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
    void *attrs;
    unsigned numAttrs;
} cudaLaunchConfig_t;
/* Submits a kernel; `body` calls it for the current thread. */
cudaError_t ndp_sim_launch(const cudaLaunchConfig_t *c, const void *kernel, std::function<void()> body);
cudaError_t ndp_sim_set_shared(const void *kernel, int bytes);
template <typename... P, typename... A>
static inline cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *c, void (*kernel)(P...), A &&...args) {
    std::tuple<P...> copies(args...);
    return ndp_sim_launch(c, (const void *)kernel, [=] { std::apply(kernel, copies); });
}
/* There is one attribute. */
template <typename F> static inline cudaError_t cudaFuncSetAttribute(F *kernel, cudaFuncAttribute, int bytes) {
    return ndp_sim_set_shared((const void *)kernel, bytes);
}

#endif
