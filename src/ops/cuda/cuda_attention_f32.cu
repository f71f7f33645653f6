/* Attention in fp32: a thread for each row of a tile, no operation between threads in the loop over the other side.
 *
 * A thread sums COLS columns of its row of o, dq, dk or dv in registers; heads with more have several blocks, which
 * make the scores again. Its row of q and do (or k and v) lies in shared memory, transposed, so that the threads of a
 * warp read neighbours; rows of the other side are read by all threads at once. */
#include "ops/cuda/cuda_attention.cuh"
#include "ops/cuda/cuda_mma.cuh"

enum { STEP = NDP_ATT_F32_STEP, CHUNK = 8, MOST_ROWS = NDP_ATT_F32_ROWS, MOST_COLS = NDP_ATT_F32_COLS };

/* A tile that is walked over: rows of `padded` columns, zeros beyond those of the head. */
struct f32_tile {
    float *x, *y; /* k and v, or q and do */
    ndp_att_row *rows;
    int padded;
};

template <ndp_att_side SIDE>
static __device__ __forceinline__ float f32_element(const ndp_att_call &a, const ndp_view &v, int dim, int kv, int r,
                                                    int d) {
    return r < a.n[SIDE] && d < dim ? ((const float *)v.data)[ndp_att_at<SIDE>(a, v, dim, kv, r) + d] : 0.0f;
}

/* to [dim4, threads]: the rows of the block's tile. */
template <ndp_att_side OWN>
static __device__ void f32_load_own(float *to, const ndp_att_call &a, const ndp_view &v, int dim, int kv, int first,
                                    int dim4) {
    int rows = (int)blockDim.x;
    for (int i = (int)threadIdx.x; i < rows * dim4; i += rows)
        to[i % dim4 * rows + i / dim4] = f32_element<OWN>(a, v, dim, kv, first + i / dim4, i % dim4);
}

template <ndp_att_side SIDE>
static __device__ void f32_load_step(const f32_tile &to, const ndp_att_call &a, const ndp_att_filter &filter, int kv,
                                     int tile) {
    const ndp_view &x = SIDE == NDP_ATT_KEYS_SIDE ? a.k : a.q, &y = SIDE == NDP_ATT_KEYS_SIDE ? a.v : a.d_o;
    int first = tile * a.step_rows, end = min(first + a.step_rows, a.n[SIDE]);
    for (int i = (int)threadIdx.x; i < STEP * to.padded; i += (int)blockDim.x) {
        int r = first + i / to.padded, d = i % to.padded;
        bool there = r < end && filter.keeps(r);
        to.x[i] = there ? f32_element<SIDE>(a, x, a.dim, kv, r, d) : 0.0f;
        to.y[i] = there ? f32_element<SIDE>(a, y, a.v_dim, kv, r, d) : 0.0f;
    }
    for (int i = (int)threadIdx.x; i < STEP; i += (int)blockDim.x)
        to.rows[i] = ndp_att_row_at<SIDE>(a, kv, first + i < end ? first + i : a.n[SIDE]);
}

/* dots[j] = this thread's row . row j of the tile. */
static __device__ __forceinline__ void f32_dots(float (&dots)[CHUNK], const float *own, const float *tile, int padded,
                                                int dim4) {
    int rows = (int)blockDim.x;
    NDP_UNROLL
    for (int j = 0; j < CHUNK; j++)
        dots[j] = 0.0f;
    NDP_ROLLED
    for (int d = 0; d < dim4; d += 4) {
        const float *at = own + d * rows + threadIdx.x;
        float x0 = at[0], x1 = at[rows], x2 = at[2 * rows], x3 = at[3 * rows];
        NDP_UNROLL
        for (int j = 0; j < CHUNK; j++) {
            float4 y = *(const float4 *)(tile + j * padded + d);
            dots[j] += x0 * y.x + x1 * y.y + (x2 * y.z + x3 * y.w);
        }
    }
}

/* What a thread sums. */
template <int COLS> struct f32_sums { float acc[COLS], max, sum; };

/* acc += w[j] row j of the tile. */
template <int COLS>
static __device__ __forceinline__ void f32_add(float (&acc)[COLS], const float (&w)[CHUNK], const float *tile,
                                               int padded) {
    NDP_UNROLL
    for (int j = 0; j < CHUNK; j++)
        NDP_UNROLL
    for (int c = 0; c < COLS; c += 4) {
        float4 y = *(const float4 *)(tile + j * padded + c);
        acc[c] += w[j] * y.x, acc[c + 1] += w[j] * y.y, acc[c + 2] += w[j] * y.z, acc[c + 3] += w[j] * y.w;
    }
}

/* Scores become weights relative to the greatest score so far; earlier sums are scaled to it. */
template <int COLS>
static __device__ __forceinline__ void f32_softmax(f32_sums<COLS> *s, float (&w)[CHUNK], const ndp_att_call &a,
                                                   const ndp_att_row &own, const ndp_att_row *others) {
    float most = s->max, slope;
    NDP_UNROLL
    for (int j = 0; j < CHUNK; j++) {
        bool seen = ndp_att_sees(own, others[j]);
        w[j] = seen ? ndp_att_capped(w[j] * a.scale, a.cap, &slope) : -INFINITY;
        most = fmaxf(most, w[j]);
    }
    float base = most == -INFINITY ? 0.0f : most, by = expf(s->max - base);
    if (most > s->max) {
        s->sum *= by;
        NDP_UNROLL
        for (int c = 0; c < COLS; c++)
            s->acc[c] *= by;
    }
    s->max = most;
    NDP_UNROLL
    for (int j = 0; j < CHUNK; j++) {
        w[j] = expf(w[j] - base);
        s->sum += w[j];
    }
}

/* Scores become weights of the other side's rows in a gradient: p, or ds where dp are given. */
template <ndp_att_side OWN, bool DS>
static __device__ __forceinline__ void f32_weights(float (&w)[CHUNK], const float (&dp)[CHUNK], const ndp_att_call &a,
                                                   const ndp_att_row &own, const ndp_att_row *others) {
    NDP_UNROLL
    for (int j = 0; j < CHUNK; j++) {
        ndp_att_row other = others[j];
        const ndp_att_row &query = OWN == NDP_ATT_QUERIES_SIDE ? own : other;
        float slope, x = ndp_att_capped(w[j] * a.scale, a.cap, &slope);
        w[j] = ndp_att_see<OWN>(own, other) ? expf(x - query.lse) * (DS ? (dp[j] - query.delta) * slope : 1.0f) : 0.0f;
    }
}

template <int COLS>
static __device__ __forceinline__ void f32_store(const ndp_view &v, int64_t at, int first, int dim,
                                                 const float (&acc)[COLS], float by) {
    NDP_UNROLL
    for (int c = 0; c < COLS; c++)
        if (first + c < dim)
            ((float *)v.data)[at + first + c] = acc[c] * by;
}

template <int COLS, ndp_att_result WHAT>
static __device__ __forceinline__ void f32_store_row(const ndp_att_call &a, const f32_sums<COLS> &s, int kv, int r,
                                                     int first) {
    constexpr ndp_att_side OWN = WHAT == NDP_ATT_O || WHAT == NDP_ATT_DQ ? NDP_ATT_QUERIES_SIDE : NDP_ATT_KEYS_SIDE;
    const ndp_view &out = WHAT == NDP_ATT_O ? a.o : WHAT == NDP_ATT_DQ ? a.dq : WHAT == NDP_ATT_DK ? a.dk : a.dv;
    float by = WHAT == NDP_ATT_O ? (s.sum == 0.0f ? 0.0f : 1.0f / s.sum) : WHAT == NDP_ATT_DV ? 1.0f : a.scale;
    int dim = WHAT == NDP_ATT_O || WHAT == NDP_ATT_DV ? a.v_dim : a.dim;
    f32_store(out, ndp_att_at<OWN>(a, out, dim, kv, r), first, dim, s.acc, by);
    if (WHAT == NDP_ATT_O && first == 0 && a.lse.data) {
        int64_t token = r / a.group, head = (int64_t)kv * a.group + r % a.group;
        ((float *)a.lse.data)[token * a.lse.ld + head] = s.sum == 0.0f ? -INFINITY : s.max + logf(s.sum);
    }
}

template <int COLS, ndp_att_result WHAT>
__global__ __launch_bounds__(MOST_ROWS) void ndp_att_f32_kernel(const ndp_att_call a, int padded) {
    constexpr ndp_att_side OWN = WHAT == NDP_ATT_O || WHAT == NDP_ATT_DQ ? NDP_ATT_QUERIES_SIDE : NDP_ATT_KEYS_SIDE;
    constexpr ndp_att_side OTHER = OWN == NDP_ATT_QUERIES_SIDE ? NDP_ATT_KEYS_SIDE : NDP_ATT_QUERIES_SIDE;
    constexpr bool DS = WHAT == NDP_ATT_DQ || WHAT == NDP_ATT_DK; /* its weights are ds and its operand the first */
    int kv = (int)blockIdx.y, tile = (int)blockIdx.x, first_col = (int)blockIdx.z * COLS,
        dim4 = (max(a.dim, a.v_dim) + 3) / 4 * 4;
    int first = tile * a.own_rows, r = first + (int)threadIdx.x;
    float *own_x = (float *)ndp_shared_bytes, *own_y = own_x + dim4 * (int)blockDim.x;
    f32_tile t = {DS ? own_y + dim4 * (int)blockDim.x : own_y, nullptr, nullptr, padded};
    t.y = t.x + STEP * padded, t.rows = (ndp_att_row *)(t.y + STEP * padded);
    f32_load_own<OWN>(own_x, a, OWN == NDP_ATT_QUERIES_SIDE ? a.q : a.k, a.dim, kv, first, dim4);
    if (DS)
        f32_load_own<OWN>(own_y, a, OWN == NDP_ATT_QUERIES_SIDE ? a.d_o : a.v, a.v_dim, kv, first, dim4);
    ndp_att_row own = ndp_att_row_at<OWN>(a, kv, r);
    f32_sums<COLS> s;
    s.max = WHAT == NDP_ATT_O ? ndp_att_sink(a, kv, r) : -INFINITY, s.sum = s.max == -INFINITY ? 0.0f : 1.0f;
    NDP_UNROLL
    for (int c = 0; c < COLS; c++)
        s.acc[c] = 0.0f;
    ndp_att_walk<OWN> walk(a, tile);
    for (int i = walk.next(); i >= 0; i = walk.next()) {
        __syncthreads();
        f32_load_step<OTHER>(t, a, ndp_att_filter_of(a, walk, i), kv, i);
        __syncthreads();
        NDP_ROLLED
        for (int j = 0; j < min(a.step_rows, (int)STEP); j += CHUNK) {
            float w[CHUNK], dp[CHUNK] = {};
            f32_dots(w, own_x, t.x + j * padded, padded, dim4);
            if (DS)
                f32_dots(dp, own_y, t.y + j * padded, padded, dim4);
            if (WHAT == NDP_ATT_O)
                f32_softmax(&s, w, a, own, t.rows + j);
            else
                f32_weights<OWN, DS>(w, dp, a, own, t.rows + j);
            f32_add(s.acc, w, (DS ? t.x : t.y) + j * padded + first_col, padded);
        }
    }
    if (r < a.n[OWN])
        f32_store_row<COLS, WHAT>(a, s, kv, r, first_col);
}

typedef void (*f32_entry)(ndp_att_call, int);
#define COLUMNS(n)                                                                                                     \
    {                                                                                                                  \
        ndp_att_f32_kernel<n, NDP_ATT_O>, ndp_att_f32_kernel<n, NDP_ATT_DQ>, ndp_att_f32_kernel<n, NDP_ATT_DK>,        \
            ndp_att_f32_kernel<n, NDP_ATT_DV>                                                                          \
    }
static const f32_entry entries[][NDP_ATT_DV + 1] = {COLUMNS(32), COLUMNS(64), COLUMNS(96), COLUMNS(128)};

ndp_status ndp_att_run_f32(const ndp_op_call *c, const ndp_att_call &a, ndp_att_result what) {
    ndp_att_side own = what == NDP_ATT_O || what == NDP_ATT_DQ ? NDP_ATT_QUERIES_SIDE : NDP_ATT_KEYS_SIDE;
    int dim = ndp_att_dim(c), parts = (dim + MOST_COLS - 1) / MOST_COLS, unit = ((dim + parts - 1) / parts + 31) / 32;
    int padded = unit * 32 * parts, dim4 = (dim + 3) / 4 * 4, owned = what == NDP_ATT_DQ || what == NDP_ATT_DK ? 2 : 1;
    size_t floats = (size_t)owned * (size_t)(dim4 * a.own_rows) + 2 * (size_t)(STEP * padded);
    dim3 grid((unsigned)ndp_ceil_div(a.n[own], a.own_rows), (unsigned)a.kv_heads, (unsigned)parts);
    return ndp_launch(c, entries[unit - 1][what], grid, dim3((unsigned)a.own_rows),
                      floats * sizeof(float) + STEP * sizeof(ndp_att_row), a, padded);
}
