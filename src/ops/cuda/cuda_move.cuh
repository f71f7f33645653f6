/* Rows of bytes, moved as they are: whatever their type. */
#ifndef NDP_OPS_CUDA_CUDA_MOVE_CUH
#define NDP_OPS_CUDA_CUDA_MOVE_CUH

#include "ops/cuda/cuda_kernel.cuh"

static inline __host__ __device__ int64_t ndp_size_of(ndp_dtype t) {
    return t == NDP_F64 || t == NDP_I64 ? 8 : t == NDP_BF16 ? 2 : t == NDP_U8 ? 1 : 4;
}

/* Where row r of a matrix begins, and its bytes. */
static __device__ __forceinline__ char *ndp_row_of(const ndp_view &v, int64_t r) {
    return (char *)v.data + r * v.ld * ndp_size_of(v.dtype);
}
static inline int64_t ndp_row_bytes(const ndp_view *v) { return v->cols * ndp_size_of(v->dtype); }

enum { NDP_CHUNK = 16 };

template <typename T> static __device__ __forceinline__ void ndp_move_by(char *to, const char *from, int n) {
    for (int i = 0; i < n; i += (int)sizeof(T))
        *(T *)(to + i) = from ? *(const T *)(from + i) : T{};
}

/* Bytes at .. at + 15 of a row that has `bytes`; from NULL: zeros. */
static __device__ __forceinline__ void ndp_move(char *to, const char *from, int64_t at, int64_t bytes) {
    int n = bytes - at < NDP_CHUNK ? (int)(bytes - at) : NDP_CHUNK;
    uintptr_t odd = (uintptr_t)to | (uintptr_t)from | (uintptr_t)at | (uintptr_t)n;
    from = from ? from + at : from;
    if (odd % NDP_CHUNK == 0)
        ndp_move_by<uint4>(to + at, from, n);
    else if (odd % sizeof(uint32_t) == 0)
        ndp_move_by<uint32_t>(to + at, from, n);
    else
        ndp_move_by<unsigned char>(to + at, from, n);
}

/* A thread for each 16 bytes of `rows` rows. f(r, at): moves those at `at` of row r. */
template <typename F> __global__ void ndp_move_kernel(F f, int64_t rows, int64_t chunks) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, r = ndp_div(i, chunks);
    if (r < rows)
        f(r, (i - r * chunks) * NDP_CHUNK);
}
template <typename F>
static inline ndp_status ndp_moves(const ndp_op_call *c, int64_t rows, int64_t bytes, const F &f) {
    int64_t chunks = ndp_ceil_div(bytes, NDP_CHUNK), all = rows * chunks;
    unsigned threads = ndp_block_of(all, 256);
    return ndp_launch(c, ndp_move_kernel<F>, dim3((unsigned)ndp_ceil_div(all, threads)), dim3(threads), 0, f, rows,
                      chunks);
}

#endif
