/* What CUDA kernels share: elements of operands of any storage type, sums of a warp and of a block, launches.
 *
 * Kernels get the views of their call by value and compute in fp32. They are deterministic: no atomics on floats, sums
 * are trees of fixed shape that depend on the operands' sizes alone. Rows are addressed by 64-bit numbers. A thread
 * moves NDP_LANES neighbouring columns at once where it can: 16 bytes of bf16, 32 of fp32. */
#ifndef NDP_OPS_CUDA_CUDA_KERNEL_CUH
#define NDP_OPS_CUDA_CUDA_KERNEL_CUH

extern "C" {
#include "ops/cuda/cuda_scratch.h"
#include "ops/shape.h"
}
#include "device/cuda/cuda_queue.hpp"

#include <cuda_bf16.h>
#include <cuda_runtime.h>

/* ---- elements ---- */

/* Element (r, c) of fp32, bf16 or fp64. */
static __device__ __forceinline__ float ndp_get(const ndp_view &v, int64_t r, int64_t c) {
    int64_t i = r * v.ld + c;
    if (v.dtype == NDP_F32)
        return ((const float *)v.data)[i];
    if (v.dtype == NDP_BF16)
        return __bfloat162float(((const __nv_bfloat16 *)v.data)[i]);
    return (float)((const double *)v.data)[i];
}

/* Rounds once, to nearest even. */
static __device__ __forceinline__ void ndp_set(const ndp_view &v, int64_t r, int64_t c, float x) {
    int64_t i = r * v.ld + c;
    if (v.dtype == NDP_F32)
        ((float *)v.data)[i] = x;
    else if (v.dtype == NDP_BF16)
        ((__nv_bfloat16 *)v.data)[i] = __float2bfloat16_rn(x);
    else
        ((double *)v.data)[i] = (double)x;
}

static __device__ __forceinline__ float ndp_sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

/* Row r of an integer operand. */
static __device__ __forceinline__ int ndp_int(const ndp_view &v, int64_t r) { return ((const int *)v.data)[r * v.ld]; }

/* NDP_LANES neighbouring elements of a row. */
struct ndp_lanes {
    float x[NDP_LANES];
};
/* The same eight as stored: pairs of bf16 in the first four words, or fp32. Several loads overlap if each is widened
 * later. */
struct ndp_raw {
    unsigned w[NDP_LANES];
};

static __device__ __forceinline__ bool ndp_aligned16(const void *p) { return ((uintptr_t)p & 15) == 0; }

/* Columns c .. c + 7 of row r; 0 beyond the last column. */
static __device__ __forceinline__ ndp_raw ndp_load8(const ndp_view &v, int64_t r, int64_t c) {
    ndp_raw out = {};
    int64_t i = r * v.ld + c;
    bool whole = c + NDP_LANES <= v.cols;
    const uint16_t *h = (const uint16_t *)v.data + i;
    const float *f = (const float *)v.data + i;
    if (v.dtype == NDP_BF16 && whole && ndp_aligned16(h)) {
        uint4 a = *(const uint4 *)h;
        out.w[0] = a.x, out.w[1] = a.y, out.w[2] = a.z, out.w[3] = a.w;
    } else if (v.dtype == NDP_F32 && whole && ndp_aligned16(f)) {
        uint4 a = ((const uint4 *)f)[0], b = ((const uint4 *)f)[1];
        out = {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
    } else {
        for (int k = 0; k < NDP_LANES; k++)
            if (c + k < v.cols && v.dtype == NDP_BF16)
                out.w[k / 2] |= (unsigned)h[k] << k % 2 * 16;
            else if (c + k < v.cols)
                out.w[k] = __float_as_uint(ndp_get(v, r, c + k));
    }
    return out;
}

/* A store of 16 bytes, which the compiler cannot take apart as it may one of a uint4. */
#ifdef NDP_SIM
static inline void ndp_store16(void *to, const uint4 &v) { *(uint4 *)to = v; }
#else
static __device__ __forceinline__ void ndp_store16(void *to, const uint4 &v) {
    asm volatile("st.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
#endif
template <bool WHOLE> static __device__ __forceinline__ void ndp_put16(void *to, const uint4 &v) {
    if constexpr (WHOLE)
        ndp_store16(to, v);
    else
        *(uint4 *)to = v;
}

/* Stores those that are inside the row. WHOLE: by ndp_store16, which takes registers. */
template <bool WHOLE = false>
static __device__ __forceinline__ void ndp_store8(const ndp_view &v, int64_t r, int64_t c, const ndp_raw &in) {
    int64_t i = r * v.ld + c;
    bool whole = c + NDP_LANES <= v.cols;
    uint16_t *h = (uint16_t *)v.data + i;
    float *f = (float *)v.data + i;
    if (v.dtype == NDP_BF16 && whole && ndp_aligned16(h)) {
        ndp_put16<WHOLE>(h, make_uint4(in.w[0], in.w[1], in.w[2], in.w[3]));
    } else if (v.dtype == NDP_F32 && whole && ndp_aligned16(f)) {
        ndp_put16<WHOLE>(f, make_uint4(in.w[0], in.w[1], in.w[2], in.w[3]));
        ndp_put16<WHOLE>(f + 4, make_uint4(in.w[4], in.w[5], in.w[6], in.w[7]));
    } else {
        for (int k = 0; k < NDP_LANES; k++)
            if (c + k < v.cols && v.dtype == NDP_BF16)
                h[k] = (uint16_t)(in.w[k / 2] >> k % 2 * 16);
            else if (c + k < v.cols)
                ndp_set(v, r, c + k, __uint_as_float(in.w[k]));
    }
}

static __device__ __forceinline__ ndp_lanes ndp_widen(ndp_dtype t, const ndp_raw &in) {
    ndp_lanes out;
    for (int k = 0; k < NDP_LANES; k++)
        out.x[k] = __uint_as_float(t != NDP_BF16 ? in.w[k] : k % 2 ? in.w[k / 2] & 0xffff0000u : in.w[k / 2] << 16);
    return out;
}

/* Rounds once, to nearest even. */
static __device__ __forceinline__ ndp_raw ndp_narrow(ndp_dtype t, const ndp_lanes &in) {
    ndp_raw out = {};
    for (int k = 0; k < NDP_LANES; k++)
        out.w[k] = __float_as_uint(in.x[k]);
    for (int k = 0; t == NDP_BF16 && k < NDP_LANES / 2; k++) {
        __nv_bfloat162 pair = __floats2bfloat162_rn(in.x[2 * k], in.x[2 * k + 1]);
        memcpy(&out.w[k], &pair, sizeof pair);
    }
    return out;
}

static __device__ __forceinline__ ndp_lanes ndp_get8(const ndp_view &v, int64_t r, int64_t c) {
    return ndp_widen(v.dtype, ndp_load8(v, r, c));
}
static __device__ __forceinline__ void ndp_set8(const ndp_view &v, int64_t r, int64_t c, const ndp_lanes &in) {
    ndp_store8(v, r, c, ndp_narrow(v.dtype, in));
}

/* n columns of a matrix, from `first` on. */
static __device__ __forceinline__ ndp_view ndp_cut(ndp_view v, int64_t first, int64_t n) {
    v.data = (char *)v.data + first * (v.dtype == NDP_BF16 ? 2 : v.dtype == NDP_F64 ? 8 : 4);
    v.cols = n;
    return v;
}

/* a / b, by the short division where it can be; neither is negative. */
static __device__ __forceinline__ int64_t ndp_div(int64_t a, int64_t b) {
    return (uint64_t)(a | b) >> 32 ? a / b : (int64_t)((unsigned)a / (unsigned)b);
}

/* ---- sums ---- */

/* As ndp_split_at, of a number that the device alone knows. A sum of one term is not split. */
static __device__ __forceinline__ int64_t ndp_sum_split_at(int64_t n, int place) {
    int64_t at = n * place / (2 * NDP_SPLITS + 1);
    return place == 0 || n < 2 ? n : at > 0 ? at : 1;
}

/* All lanes get the sum (or the maximum) over the warp. */
static __device__ __forceinline__ float ndp_warp_sum(float x) {
    for (int with = NDP_WARP / 2; with > 0; with /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, with);
    return x;
}
static __device__ __forceinline__ float ndp_warp_max(float x) {
    for (int with = NDP_WARP / 2; with > 0; with /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, with));
    return x;
}

/* All threads get the sum over a one-dimensional block of whole warps; `room`: NDP_WARP floats of shared memory, which
 * are free again when it returns. A block of one warp uses no shared memory. */
static __device__ __forceinline__ float ndp_block_sum(float x, float *room) {
    int warps = blockDim.x / NDP_WARP, lane = threadIdx.x % NDP_WARP;
    x = ndp_warp_sum(x);
    if (warps == 1)
        return x;
    __syncthreads();
    if (lane == 0)
        room[threadIdx.x / NDP_WARP] = x;
    __syncthreads();
    float sum = ndp_warp_sum(lane < warps ? room[lane] : 0.0f);
    __syncthreads();
    return sum;
}

/* The dynamic shared memory of a block. */
extern __shared__ __align__(128) unsigned char ndp_shared_bytes[];

/* ---- launches ---- */

/* Threads for `work` items in a row of them: whole warps, at most `most`. Small rows get small blocks. */
static inline unsigned ndp_block_of(int64_t work, unsigned most) {
    int64_t threads = ndp_ceil_div(work > 0 ? work : 1, NDP_WARP) * NDP_WARP;
    return threads < (int64_t)most ? (unsigned)threads : most;
}

/* Submits a kernel to the call's queue. An empty grid is not launched. `shared`: the bytes of dynamic shared memory of
 * a block; NDP_ENOTSUP: the GPU has fewer. NDP_EIO: the launch was refused. */
template <typename... P, typename... A>
static inline ndp_status ndp_launch(const ndp_op_call *c, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared,
                                    A... args) {
    if (grid.x == 0 || grid.y == 0 || grid.z == 0)
        return NDP_OK;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid, config.blockDim = block, config.dynamicSmemBytes = shared;
    config.stream = c->queue->stream;
    if (shared > NDP_SHARED_FREE)
        NDP_TRY(ndp_gpu_widen(c->queue->context, (const void *)kernel, shared, c->op->name));
    cudaError_t e = cudaLaunchKernelEx(&config, kernel, P(args)...);
    return e == cudaSuccess ? NDP_OK : ndp_gpu_failed(c->queue->context, e, c->op->name);
}

/* A function of elements (r, c .. c + 7) on all elements of `v`: a thread for each eight columns. */
template <typename F> __global__ void ndp_each8_kernel(F f, int64_t rows, int64_t groups) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, r = ndp_div(i, groups);
    if (r < rows)
        f(r, (i - r * groups) * NDP_LANES);
}
/* F is a struct with operands as members and `__device__ void operator()(int64_t r, int64_t c) const`. */
template <typename F> static inline ndp_status ndp_each8(const ndp_op_call *c, int64_t rows, int64_t cols, const F &f) {
    int64_t groups = ndp_ceil_div(cols, NDP_LANES), all = rows * groups;
    unsigned threads = ndp_block_of(all, 256);
    return ndp_launch(c, ndp_each8_kernel<F>, dim3((unsigned)ndp_ceil_div(all, threads)), dim3(threads), 0, f, rows,
                      groups);
}
template <typename F> static inline ndp_status ndp_each8(const ndp_op_call *c, const ndp_view *v, const F &f) {
    return ndp_each8(c, v->rows, v->cols, f);
}

#endif
