/* linear_stack, linear_stack_dx and linear_stack_dw: one launch for the tiles of all groups. The host knows the number
 * of rows, not where groups begin, so a block finds the group of its tile on the device. Products of bf16 are those of
 * tensor cores, others of fp32. With NDP_SUMS_SPLIT a sum of fp32 is two, of parts of k, which are added; one of bf16
 * begins with the later part. */
#include "ops/cuda/cuda_kernels.hpp"
#include "ops/cuda/cuda_mma_tile.cuh"
#include "ops/cuda/cuda_product_tile.cuh"

extern "C" {
#include "ops/linear.h"
#include "ops/linear_stack.h"
}

/* A call, as its blocks see it. */
struct stack_call {
    ndp_view a, b, to, added, offsets;
    bool trans_b, accumulate;
    int place;      /* where sums are split */
    bool bf16;      /* on tensor cores */
    int64_t across; /* tiles of a row of tiles */
    int64_t groups;
};

/* A tile of the product of group e, or, with e == groups, of the rows of none. */
struct stack_place {
    int64_t e, first, last; /* rows of the group; past the last group: first == last */
    int64_t row, col;       /* of the tile, in its product */
};

/* After the last row of group e, or of none. */
static __device__ __forceinline__ int64_t stack_end(const stack_call &c, int64_t e) {
    return e < c.groups ? ndp_int(c.offsets, e + 1) : c.a.rows;
}

/* Of a product by rows: tile `down` of all groups. The tiles of group e begin after first / tile + e others: that is
 * enough for those before it, which may end with a short one each, and is found by halving. */
static __device__ __forceinline__ stack_place find_rows(const stack_call &c, int64_t down, int64_t col, int tile) {
    int64_t e = 0, after = c.groups + 1;
    while (after - e > 1) {
        int64_t half = (e + after) / 2;
        if (ndp_int(c.offsets, half) / tile + half <= down)
            e = half;
        else
            after = half;
    }
    int64_t first = ndp_int(c.offsets, e), last = stack_end(c, e), row = (down - first / tile - e) * tile;
    return {e, first, row < last - first ? last : first, row, col};
}

/* Rows first .. of v. */
static __device__ __forceinline__ ndp_view stack_rows(ndp_view v, int64_t first, int64_t n) {
    v.data = (char *)v.data + first * v.ld * (v.dtype == NDP_BF16 ? 2 : v.dtype == NDP_F64 ? 8 : 4);
    v.rows = n;
    return v;
}

/* The tile's elements = sums + addend. The addend has the rows of `to`. */
static __device__ __forceinline__ void stack_store(const ndp_view &to, const ndp_view &added,
                                                   const float (&sums)[EACH][EACH], int64_t row, int64_t col) {
    for (int i = 0; i < EACH; i++)
        for (int j = 0; j < EACH; j++) {
            int64_t r = row + (int)threadIdx.x / SIDE + i * SIDE, c = col + (int)threadIdx.x % SIDE + j * SIDE;
            if (r < to.rows && c < to.cols)
                ndp_set(to, r, c, added.data ? sums[i][j] + ndp_get(added, r, c) : sums[i][j]);
        }
}

/* sums = op(a) op(b) for the tile, over k of `depth`. */
static __device__ __forceinline__ void stack_sum(float (&sums)[EACH][EACH], const stack_call &c,
                                                 const ndp_tile_operand &a, const ndp_tile_operand &b,
                                                 const stack_place &t, int64_t depth) {
    int64_t at = ndp_sum_split_at(depth, c.place);
    sum_tile(sums, a, b, t.row, t.col, 0, at);
    if (at == depth)
        return;
    float rest[EACH][EACH] = {};
    sum_tile(rest, a, b, t.row, t.col, at, depth);
    for (int i = 0; i < EACH; i++)
        for (int j = 0; j < EACH; j++)
            sums[i][j] += rest[i][j];
}

/* Rows of a group times its matrix. */
static __global__ void __launch_bounds__(THREADS) ndp_stack_rows_kernel(const stack_call c) {
    stack_place t = find_rows(c, blockIdx.x / c.across, blockIdx.x % c.across * TILE, TILE);
    int64_t n = t.last - t.first, size = ndp_div(c.b.rows, c.groups);
    float sums[EACH][EACH] = {};
    if (n == 0)
        return;
    ndp_view to = stack_rows(c.to, t.first, n), added = c.added;
    if (added.data)
        added = stack_rows(added, t.first, n);
    if (t.e < c.groups)
        stack_sum(sums, c, {stack_rows(c.a, t.first, n), true, n},
                  {stack_rows(c.b, t.e * size, size), c.trans_b, c.to.cols}, t, c.a.cols);
    stack_store(to, added, sums, t.row, t.col);
}

/* The same on tensor cores. */
template <bool B_ALONG>
__global__ void __launch_bounds__(MMA_THREADS, 2) ndp_stack_rows_bf16_kernel(const stack_call c) {
    stack_place t = find_rows(c, blockIdx.x / c.across, blockIdx.x % c.across * MMA_TILE, MMA_TILE);
    int64_t n = t.last - t.first, size = ndp_div(c.b.rows, c.groups), depth = c.a.cols;
    ndp_mma_sums sums = {};
    if (n == 0)
        return;
    if (t.e < c.groups)
        ndp_mma_tile<true, B_ALONG>(sums, {stack_rows(c.a, t.first, n), n},
                                    {stack_rows(c.b, t.e * size, size), c.to.cols}, t.row, t.col,
                                    ndp_sum_split_at(depth, c.place), depth);
    ndp_view added = c.added;
    if (added.data)
        added = stack_rows(added, t.first, n);
    ndp_mma_store(stack_rows(c.to, t.first, n), added, sums, t.row, t.col);
}

/* Of the gradient of a group's matrix: `down` tiles of rows each. */
static __device__ __forceinline__ stack_place find_sum(const stack_call &c, int64_t down, int tile) {
    int64_t i = blockIdx.x / c.across, e = ndp_div(i, down);
    return {e, ndp_int(c.offsets, e), ndp_int(c.offsets, e + 1), (i - e * down) * tile, blockIdx.x % c.across * tile};
}

static __global__ void __launch_bounds__(THREADS) ndp_stack_sum_kernel(const stack_call c, int64_t down) {
    stack_place t = find_sum(c, down, TILE);
    int64_t n = t.last - t.first, size = ndp_div(c.to.rows, c.groups);
    ndp_view to = stack_rows(c.to, t.e * size, size);
    float sums[EACH][EACH] = {};
    if (n > 0)
        stack_sum(sums, c, {stack_rows(c.a, t.first, n), false, size}, {stack_rows(c.b, t.first, n), false, c.to.cols},
                  t, n);
    stack_store(to, c.accumulate ? to : ndp_view{}, sums, t.row, t.col);
}

static __global__ void __launch_bounds__(MMA_THREADS, 2) ndp_stack_sum_bf16_kernel(const stack_call c, int64_t down) {
    stack_place t = find_sum(c, down, MMA_TILE);
    int64_t n = t.last - t.first, size = ndp_div(c.to.rows, c.groups);
    ndp_view to = stack_rows(c.to, t.e * size, size);
    ndp_mma_sums sums = {};
    if (n > 0)
        ndp_mma_tile<false, false>(sums, {stack_rows(c.a, t.first, n), size}, {stack_rows(c.b, t.first, n), c.to.cols},
                                   t.row, t.col, ndp_sum_split_at(n, c.place), n);
    ndp_mma_store(to, c.accumulate ? to : ndp_view{}, sums, t.row, t.col);
}

static stack_call call_of(const ndp_product *p, const ndp_op_call *c) {
    stack_call s = {};
    s.a = c->in[p->a], s.b = c->in[p->b], s.to = c->out[0], s.offsets = c->in[2];
    if (p->added >= 0)
        s.added = c->in[p->added];
    s.trans_b = p->trans_b;
    s.accumulate = c->attr->accumulate;
    s.place = ndp_split_place(c->exec);
    s.bf16 = s.a.dtype == NDP_BF16 && s.b.dtype == NDP_BF16;
    s.across = ndp_ceil_div(s.to.cols, s.bf16 ? MMA_TILE : TILE);
    s.groups = ndp_stack_groups(c);
    return s;
}

/* No more tiles than this have rows, wherever the groups begin: each, and the rows of none, may end with a short one.
 */
static ndp_status run_rows(const ndp_product *p, const ndp_op_call *c) {
    stack_call s = call_of(p, c);
    dim3 grid((unsigned)((s.to.rows / (s.bf16 ? MMA_TILE : TILE) + s.groups + 1) * s.across));
    if (!s.to.data)
        return NDP_OK;
    if (!s.bf16)
        return ndp_launch(c, ndp_stack_rows_kernel, grid, dim3(THREADS), TILE_BYTES, s);
    if (s.trans_b)
        return ndp_launch(c, ndp_stack_rows_bf16_kernel<true>, grid, dim3(MMA_THREADS), ndp_mma_bytes<true, true>(), s);
    return ndp_launch(c, ndp_stack_rows_bf16_kernel<false>, grid, dim3(MMA_THREADS), ndp_mma_bytes<true, false>(), s);
}

static ndp_status run_linear_stack(const ndp_op_call *c) { return run_rows(&ndp_product_linear_stack, c); }
static ndp_status run_linear_stack_dx(const ndp_op_call *c) { return run_rows(&ndp_product_linear_stack_dx, c); }

static ndp_status run_linear_stack_dw(const ndp_op_call *c) {
    stack_call s = call_of(&ndp_product_linear_stack_dw, c);
    int64_t down = ndp_ceil_div(s.to.rows / s.groups, s.bf16 ? MMA_TILE : TILE);
    dim3 grid((unsigned)(s.groups * down * s.across));
    if (!s.to.data)
        return NDP_OK;
    if (s.bf16)
        return ndp_launch(c, ndp_stack_sum_bf16_kernel, grid, dim3(MMA_THREADS), ndp_mma_bytes<false, false>(), s,
                          down);
    return ndp_launch(c, ndp_stack_sum_kernel, grid, dim3(THREADS), TILE_BYTES, s, down);
}

NDP_CUDA_KERNEL(linear_stack)
NDP_CUDA_KERNEL(linear_stack_dx)
NDP_CUDA_KERNEL(linear_stack_dw)
