/* Kernels that sum over a row and then write it: norms. A team of threads has a row, or a run of n columns of one,
 * eight columns a thread at a time. What it reads stays in registers between the sums and the results, so that operands
 * are read once; runs of more than 8192 columns are read again.
 *
 * Such a kernel is a struct with its operands as members and
 *   PASSES, SUMS                              sums that need each other's results; numbers summed in each: 1 or 2
 *   kept                                      what a thread keeps of eight columns
 *   kept read(u, c) const                     columns c .. c + 7 of run u
 *   float2 add(pass, u, c, kept, stats) const their part of the sums
 *   float2 finish(pass, sum, stats) const     stats, what is known of the run; zeros before the first pass
 *   void store(u, stats) const                the numbers of a run
 *   void write(u, c, kept, stats) const       results */
#ifndef NDP_OPS_CUDA_CUDA_ROWS_CUH
#define NDP_OPS_CUDA_CUDA_ROWS_CUH

#include "ops/cuda/cuda_kernel.cuh"

/* Columns first .. first + n - 1 of row t, the g-th run of it. */
struct ndp_run {
    int64_t t;
    int g, first, n;
};

static __device__ __forceinline__ ndp_raw ndp_load8(const ndp_view &v, const ndp_run &u, int c) {
    return ndp_load8(ndp_cut(v, u.first, u.n), u.t, c);
}
static __device__ __forceinline__ void ndp_set8(const ndp_view &v, const ndp_run &u, int c, const ndp_lanes &in) {
    ndp_set8(ndp_cut(v, u.first, u.n), u.t, c, in);
}

template <int SUMS> static __device__ __forceinline__ float2 ndp_lanes_sum(float2 s, int lanes) {
    for (int with = lanes / 2; with > 0; with /= 2) {
        s.x += __shfl_xor_sync(0xffffffffu, s.x, with);
        if (SUMS > 1)
            s.y += __shfl_xor_sync(0xffffffffu, s.y, with);
    }
    return s;
}

/* All threads of a team get its sums: a part of a warp (a power of two), or a block. `room`: for a number of each warp,
 * used once. */
template <int SUMS> static __device__ __forceinline__ float2 ndp_team_sum(float2 s, int team, float2 *room) {
    s = ndp_lanes_sum<SUMS>(s, team < NDP_WARP ? team : NDP_WARP);
    if (team <= NDP_WARP)
        return s;
    int lane = threadIdx.x % NDP_WARP;
    if (lane == 0)
        room[threadIdx.x / NDP_WARP] = s;
    __syncthreads();
    s = lane < team / NDP_WARP ? room[lane] : make_float2(0, 0);
    return ndp_lanes_sum<SUMS>(s, NDP_WARP);
}

/* The largest teams whose threads keep so many groups of eight columns; 0: none, they are read again. */
static constexpr int ndp_most_threads(int kept) { return kept == 1 ? 256 : 512; }

template <typename F, int KEPT>
__global__ void __launch_bounds__(ndp_most_threads(KEPT), 1)
    ndp_rows_kernel(F f, int64_t rows, int n, int runs, int team) {
    int64_t i = (int64_t)blockIdx.x * (blockDim.x / team) + threadIdx.x / team, t = ndp_div(i, runs);
    int g = (int)(i - t * runs), first = threadIdx.x % team * NDP_LANES, step = team * NDP_LANES;
    ndp_run u = {t, g, g * n, n};
    int end = t < rows ? n : 0; /* teams after the last row have no columns */
    typename F::kept kept[KEPT ? KEPT : 1];
    auto each = [&](auto use) {
        if (KEPT == 0)
            for (int c = first; c < end; c += step)
                use(c, f.read(u, c));
#pragma unroll
        for (int k = 0; k < KEPT; k++)
            if (first + k * step < end)
                use(first + k * step, kept[k]);
    };
#pragma unroll
    for (int k = 0; k < KEPT; k++)
        if (first + k * step < end)
            kept[k] = f.read(u, first + k * step);
    float2 stats = make_float2(0, 0);
#pragma unroll
    for (int pass = 0; pass < F::PASSES; pass++) {
        float2 sum = make_float2(0, 0);
        each([&](int c, const typename F::kept &k) {
            float2 part = f.add(pass, u, c, k, stats);
            sum.x += part.x, sum.y += part.y;
        });
        stats = f.finish(pass, ndp_team_sum<F::SUMS>(sum, team, (float2 *)ndp_shared_bytes + pass * NDP_WARP), stats);
    }
    if (first < end && first == 0)
        f.store(u, stats);
    each([&](int c, const typename F::kept &k) { f.write(u, c, k, stats); });
}

/* Each of `rows` rows is `runs` runs of n columns. */
template <typename F> static inline ndp_status ndp_rows(const ndp_op_call *c, int64_t rows, int64_t n, int runs, F f) {
    int64_t groups = ndp_ceil_div(n, NDP_LANES), all = rows * runs;
    int team = 1;
    while (team < groups && team < NDP_WARP)
        team *= 2;
    if (groups <= NDP_WARP) {
        unsigned threads = ndp_block_of(all * team, ndp_most_threads(1));
        dim3 grid((unsigned)ndp_ceil_div(all * team, threads));
        return ndp_launch(c, ndp_rows_kernel<F, 1>, grid, dim3(threads), 0, f, rows, (int)n, runs, team);
    }
    int kept = groups <= ndp_most_threads(1) ? 1 : groups <= 2 * ndp_most_threads(2) ? 2 : 0;
    unsigned threads = ndp_block_of(ndp_ceil_div(groups, kept ? kept : 1), ndp_most_threads(kept));
    auto kernel = kept == 1 ? ndp_rows_kernel<F, 1> : kept == 2 ? ndp_rows_kernel<F, 2> : ndp_rows_kernel<F, 0>;
    return ndp_launch(c, kernel, dim3((unsigned)all), dim3(threads), F::PASSES * NDP_WARP * sizeof(float2), f, rows,
                      (int)n, runs, (int)threads);
}

/* ---- parts of sums over eight columns ---- */

/* Columns before `at` and from it on are summed apart. */
static __device__ __forceinline__ float2 ndp_squares8(const ndp_lanes &v, int c, int at) {
    float2 sum = make_float2(0, 0);
    for (int k = 0; k < NDP_LANES; k++)
        if (c + k < at)
            sum.x += v.x[k] * v.x[k];
        else
            sum.y += v.x[k] * v.x[k];
    return sum;
}

/* w + offset */
static __device__ __forceinline__ ndp_lanes ndp_weight8(const ndp_view &w, int c, float offset) {
    ndp_lanes out = ndp_get8(w, 0, c);
    for (int k = 0; k < NDP_LANES; k++)
        out.x[k] += offset;
    return out;
}

/* 0 beyond the last column, where lanes are 0. */
static __device__ __forceinline__ float ndp_dot8(const ndp_lanes &a, const ndp_lanes &b) {
    float sum = 0;
    for (int k = 0; k < NDP_LANES; k++)
        sum += a.x[k] * b.x[k];
    return sum;
}

/* sum (w + offset) dy x: in a gradient of an RMSNorm. 0 beyond the last column. */
static __device__ __forceinline__ float ndp_along8(const ndp_lanes &w, const ndp_lanes &dy, const ndp_lanes &x) {
    float sum = 0;
    for (int k = 0; k < NDP_LANES; k++)
        sum += dy.x[k] * w.x[k] * x.x[k];
    return sum;
}

#endif
