/* What the bf16 kernels of attention share: tiles in shared memory, scores and results in fragments.
 *
 * A block has four warps, and each owns 16 rows of its tile. Rows of the other side come through shared memory, two
 * tiles at a time: while products use one, asynchronous copies fill the other. Products are of bf16 and summed in
 * fp32; heads are padded with zeros to D columns. */
#ifndef NDP_OPS_CUDA_CUDA_ATTENTION_BF16_CUH
#define NDP_OPS_CUDA_CUDA_ATTENTION_BF16_CUH

#include "ops/cuda/cuda_attention.cuh"
#include "ops/cuda/cuda_mma.cuh"

enum { NDP_ATT_THREADS = 128 };

static constexpr float NDP_ATT_LOG2E = 1.4426950408889634f;

/* Whether each row of each head begins at 16 bytes and has whole pieces of 16. */
static __device__ __forceinline__ bool ndp_att_aligned(const ndp_view &v, int dim) {
    return ndp_aligned16(v.data) && v.ld % 8 == 0 && dim % 8 == 0;
}

/* to [ROWS, D + NDP_ATT_PAD]: rows first .. end - 1 that the filter keeps, zeros otherwise. Rows that are not aligned
 * are there at once, others after ndp_copies_wait. */
template <int D, int ROWS, ndp_att_side SIDE>
static __device__ __forceinline__ void ndp_att_load(__nv_bfloat16 *to, const ndp_att_call &a, const ndp_view &v,
                                                    int dim, const ndp_att_filter &filter, int kv, int first, int end) {
    const __nv_bfloat16 *data = (const __nv_bfloat16 *)v.data;
    bool aligned = ndp_att_aligned(v, dim);
    for (int i = (int)threadIdx.x; i < ROWS * (D / 8); i += NDP_ATT_THREADS) {
        int r = i / (D / 8), d = i % (D / 8) * 8;
        bool there = first + r < end && d < dim && filter.keeps(first + r);
        const __nv_bfloat16 *from = there ? data + ndp_att_at<SIDE>(a, v, dim, kv, first + r) + d : data;
        __nv_bfloat16 *into = to + r * (D + NDP_ATT_PAD) + d;
        if (aligned)
            ndp_copy16(into, from, there ? 16 : 0);
        else
            for (int k = 0; k < 8; k++)
                into[k] = there && d + k < dim ? from[k] : __float2bfloat16_rn(0.0f);
    }
}

/* A tile that is walked over, in one of two places. The padding of each row of x holds where that row is (so that heads
 * of 256 fit into the 99 KiB that some GPUs have). */
template <int D, int ROWS> struct ndp_att_room {
    enum { LD = D + NDP_ATT_PAD };
    __nv_bfloat16 x[ROWS * LD], y[ROWS * LD]; /* k and v, or q and do */

    __device__ __forceinline__ ndp_att_row *row(int r) { return (ndp_att_row *)(x + r * LD + D); }
    __device__ __forceinline__ const ndp_att_row *row(int r) const { return (const ndp_att_row *)(x + r * LD + D); }
};
static_assert(sizeof(ndp_att_row) == NDP_ATT_PAD * sizeof(__nv_bfloat16), "a row's padding holds its positions");

/* The rows of a tile that is walked over. */
template <int D, int ROWS, ndp_att_side SIDE>
static __device__ __forceinline__ void ndp_att_load_rows(ndp_att_room<D, ROWS> *room, const ndp_att_call &a, int kv,
                                                         int first, int end) {
    for (int i = (int)threadIdx.x; i < ROWS; i += NDP_ATT_THREADS) {
        ndp_att_row row = ndp_att_row_at<SIDE>(a, kv, first + i < end ? first + i : a.n[SIDE]);
        row.lse *= NDP_ATT_LOG2E;
        *room->row(i) = row;
    }
}

/* Begins to fill `room` with a tile of the other side of OWN. */
template <int D, int ROWS, ndp_att_side OWN>
static __device__ __forceinline__ void ndp_att_fetch(ndp_att_room<D, ROWS> *room, const ndp_att_call &a,
                                                     const ndp_att_walk<OWN> &walk, int kv, int tile) {
    constexpr ndp_att_side SIDE = OWN == NDP_ATT_QUERIES_SIDE ? NDP_ATT_KEYS_SIDE : NDP_ATT_QUERIES_SIDE;
    int first = tile * a.step_rows, end = min(first + a.step_rows, a.n[SIDE]);
    ndp_att_filter filter = ndp_att_filter_of(a, walk, tile);
    ndp_att_load<D, ROWS, SIDE>(room->x, a, SIDE == NDP_ATT_KEYS_SIDE ? a.k : a.q, a.dim, filter, kv, first, end);
    ndp_att_load<D, ROWS, SIDE>(room->y, a, SIDE == NDP_ATT_KEYS_SIDE ? a.v : a.d_o, a.v_dim, filter, kv, first, end);
    ndp_att_load_rows<D, ROWS, SIDE>(room, a, kv, first, end);
    ndp_copies_commit();
}

/* Whether every row of the block's tile sees every row of this one, which is full: nothing is masked. */
template <int ROWS, ndp_att_side OWN>
static __device__ __forceinline__ bool ndp_att_whole(const ndp_att_call &a, const ndp_att_walk<OWN> &walk, int tile) {
    return a.step_rows == ROWS && (tile + 1) * ROWS <= a.n[!OWN] && walk.sees_all(tile);
}

/* Stores x [16 x 8N] times `by`, a row's factor: rows r and r + 8 of a side at columns 2 (lane % 4) + 8 j. */
template <int N, ndp_att_side SIDE>
static __device__ __forceinline__ void ndp_att_store(const ndp_att_call &a, const ndp_view &v, int dim, int kv, int r,
                                                     const float (&x)[N][4], const float (&by)[2]) {
    int column = (int)(threadIdx.x % 4) * 2;
    NDP_UNROLL
    for (int h = 0; h < 2; h++) {
        if (r + 8 * h >= a.n[SIDE])
            continue;
        int64_t at = ndp_att_at<SIDE>(a, v, dim, kv, r + 8 * h);
        bool pairs = v.ld % 2 == 0 && dim % 2 == 0 && ((uintptr_t)v.data & 7) == 0;
        NDP_UNROLL
        for (int j = 0; j < N; j++) {
            int d = column + 8 * j;
            float u = x[j][2 * h] * by[h], w = x[j][2 * h + 1] * by[h];
            if (d >= dim)
                continue;
            if (v.dtype == NDP_F32) {
                float *to = (float *)v.data + at + d;
                if (pairs)
                    *(float2 *)to = make_float2(u, w);
                else {
                    to[0] = u;
                    if (d + 1 < dim)
                        to[1] = w;
                }
            } else {
                __nv_bfloat16 *to = (__nv_bfloat16 *)v.data + at + d;
                if (pairs)
                    *(unsigned *)to = ndp_bf16_pair(u, w);
                else {
                    to[0] = __float2bfloat16_rn(u);
                    if (d + 1 < dim)
                        to[1] = __float2bfloat16_rn(w);
                }
            }
        }
    }
}

#endif
