/* A tile of a product of bf16 by a block, on tensor cores: 128 x 128 elements, summed in fp32.
 *
 * Pieces of MMA_DEPTH of k pass through shared memory, MMA_STAGES of them at a time: while the products use one,
 * asynchronous copies fill the others. A block has eight warps, two rows of four, and each owns 64 x 32 elements. An
 * element is summed over k in order, 16 of k at a time from where k begins, so its bits depend on its row and its
 * column alone. Rows, columns and k that are not there are zeros in shared memory. */
#ifndef NDP_OPS_CUDA_CUDA_MMA_TILE_CUH
#define NDP_OPS_CUDA_CUDA_MMA_TILE_CUH

#include "ops/cuda/cuda_mma.cuh"

/* Rows in shared memory have MMA_PAD elements more, those of sums 4 floats, so that threads of a warp use different
 * banks. */
static constexpr int MMA_TILE = 128, MMA_DEPTH = 32, MMA_STAGES = 4, MMA_THREADS = 256, MMA_PAD = 8,
                     MMA_SUMS = MMA_TILE + 4;

/* What a warp sums: 4 x 4 products of 16 x 8. */
typedef float ndp_mma_sums[4][4][4];

/* op(data), [size, k], of bf16; ALONG: it is stored so, else transposed. */
template <bool ALONG> struct ndp_mma_operand {
    static constexpr int LD = (ALONG ? MMA_DEPTH : MMA_TILE) + MMA_PAD, ROOM = (ALONG ? MMA_TILE : MMA_DEPTH) * LD;
    ndp_view data;
    int64_t size;

    /* Begins to copy rows first .. first + 127 and k .. k + 31 of those before `end`. Where pieces of 16 bytes are not
     * aligned they are copied by elements, and are there at once. */
    __device__ __forceinline__ void fetch(__nv_bfloat16 *to, int64_t first, int64_t k, int64_t end) const {
        constexpr int PIECES = (ALONG ? MMA_DEPTH : MMA_TILE) / 8;
        const __nv_bfloat16 *all = (const __nv_bfloat16 *)data.data;
        bool aligned = data.ld % 8 == 0 && ndp_aligned16(all) && (!ALONG || k % 8 == 0);
        NDP_UNROLL
        for (int i = 0; i < MMA_TILE * MMA_DEPTH / 8 / MMA_THREADS; i++) {
            int at = (int)threadIdx.x + i * MMA_THREADS, r = at / PIECES, c = at % PIECES * 8;
            int64_t row = (ALONG ? first : k) + r, col = (ALONG ? k : first) + c;
            int64_t left = row < (ALONG ? size : end) ? (ALONG ? end : size) - col : 0;
            int n = left < 0 ? 0 : left < 8 ? (int)left : 8;
            const __nv_bfloat16 *from = n > 0 ? all + row * data.ld + col : all;
            __nv_bfloat16 *into = to + r * LD + c;
            if (aligned) {
                ndp_copy16(into, from, 2 * n);
            } else {
                NDP_ROLLED
                for (int e = 0; e < 8; e++)
                    into[e] = e < n ? from[e] : __float2bfloat16_rn(0.0f);
            }
        }
    }
};

/* sums += the products of a piece, for the first 16 N of the warp's rows. */
template <bool A_ALONG, bool B_ALONG, int N>
static __device__ __forceinline__ void ndp_mma_piece(ndp_mma_sums &sums, const __nv_bfloat16 *a,
                                                     const __nv_bfloat16 *b) {
    constexpr int LDA = ndp_mma_operand<A_ALONG>::LD, LDB = ndp_mma_operand<B_ALONG>::LD;
    int warp = (int)threadIdx.x / NDP_WARP, row = warp / 4 * 64, col = warp % 4 * 32;
    NDP_UNROLL
    for (int k = 0; k < MMA_DEPTH; k += 16) {
        unsigned left[N][4], two[4];
        NDP_UNROLL
        for (int i = 0; i < N; i++)
            if constexpr (A_ALONG)
                ndp_fragment_a(left[i], a + (row + i * 16) * LDA + k, LDA);
            else
                ndp_fragment_a_across(left[i], a + k * LDA + row + i * 16, LDA);
        NDP_UNROLL
        for (int j = 0; j < 2; j++) {
            if constexpr (B_ALONG)
                ndp_fragment_b(two, b + (col + j * 16) * LDB + k, LDB);
            else
                ndp_fragment_b_across(two, b + k * LDB + col + j * 16, LDB);
            NDP_UNROLL
            for (int i = 0; i < N; i++) {
                ndp_mma(sums[i][2 * j], left[i], two);
                ndp_mma(sums[i][2 * j + 1], left[i], two + 2);
            }
        }
    }
}

/* Shared memory: the stages, or the sums. */
template <bool A_ALONG, bool B_ALONG> static constexpr size_t ndp_mma_bytes(void) {
    constexpr size_t pieces = MMA_STAGES * (ndp_mma_operand<A_ALONG>::ROOM + ndp_mma_operand<B_ALONG>::ROOM) *
                              sizeof(__nv_bfloat16),
                     sums = MMA_TILE * MMA_SUMS * sizeof(float);
    return pieces > sums ? pieces : sums;
}

/* sums += op(a) op(b) for the tile at (row, col): over k from `at` to `depth` - 1, then from 0 to `at` - 1. All threads
 * of the block call it. */
template <bool A_ALONG, bool B_ALONG>
static __device__ __forceinline__ void ndp_mma_tile(ndp_mma_sums &sums, const ndp_mma_operand<A_ALONG> &a,
                                                    const ndp_mma_operand<B_ALONG> &b, int64_t row, int64_t col,
                                                    int64_t at, int64_t depth) {
    constexpr int ROOM = ndp_mma_operand<A_ALONG>::ROOM + ndp_mma_operand<B_ALONG>::ROOM;
    __nv_bfloat16 *rooms = (__nv_bfloat16 *)ndp_shared_bytes;
    int warp = (int)threadIdx.x / NDP_WARP;
    int64_t rows = col + warp % 4 * 32 < b.size ? a.size - row - warp / 4 * 64 : 0; /* that the warp has */
    int64_t late = (depth - at + MMA_DEPTH - 1) / MMA_DEPTH, pieces = late + (at + MMA_DEPTH - 1) / MMA_DEPTH;
    auto fetch = [&](int64_t i) {
        __nv_bfloat16 *room = rooms + i % MMA_STAGES * ROOM;
        int64_t k = i < late ? at + i * MMA_DEPTH : (i - late) * MMA_DEPTH, end = i < late ? depth : at;
        if (i < pieces) {
            a.fetch(room, row, k, end);
            b.fetch(room + ndp_mma_operand<A_ALONG>::ROOM, col, k, end);
        }
        ndp_copies_commit();
    };
    NDP_ROLLED
    for (int64_t i = 0; i < MMA_STAGES - 1; i++)
        fetch(i);
    NDP_ROLLED
    for (int64_t i = 0; i < pieces; i++) {
        ndp_copies_wait<MMA_STAGES - 2>();
        __syncthreads(); /* this piece is there, and no thread reads the one before */
        fetch(i + MMA_STAGES - 1);
        const __nv_bfloat16 *room = rooms + i % MMA_STAGES * ROOM;
        if (rows > 16)
            ndp_mma_piece<A_ALONG, B_ALONG, 4>(sums, room, room + ndp_mma_operand<A_ALONG>::ROOM);
        else if (rows > 0)
            ndp_mma_piece<A_ALONG, B_ALONG, 1>(sums, room, room + ndp_mma_operand<A_ALONG>::ROOM);
    }
}

/* The tile's elements = sums + addend, which has the rows of `to`. They pass through shared memory, so that a thread
 * stores eight neighbours. */
static __device__ __forceinline__ void ndp_mma_store(const ndp_view &to, const ndp_view &added,
                                                     const ndp_mma_sums &sums, int64_t row, int64_t col) {
    float *room = (float *)ndp_shared_bytes;
    int warp = (int)threadIdx.x / NDP_WARP, lane = (int)threadIdx.x % NDP_WARP;
    float *own = room + (warp / 4 * 64 + lane / 4) * MMA_SUMS + warp % 4 * 32 + lane % 4 * 2;
    __syncthreads(); /* no thread reads pieces */
    NDP_UNROLL
    for (int i = 0; i < 4; i++)
        NDP_UNROLL
    for (int j = 0; j < 4; j++)
        NDP_UNROLL
    for (int h = 0; h < 2; h++)
        *(float2 *)(own + (i * 16 + h * 8) * MMA_SUMS + j * 8) = make_float2(sums[i][j][2 * h], sums[i][j][2 * h + 1]);
    __syncthreads();
    NDP_ROLLED
    for (int i = (int)threadIdx.x; i < MMA_TILE * MMA_TILE / NDP_LANES; i += MMA_THREADS) {
        int r = i / (MMA_TILE / NDP_LANES), c = i % (MMA_TILE / NDP_LANES) * NDP_LANES;
        if (row + r >= to.rows || col + c >= to.cols)
            continue;
        ndp_lanes x;
        memcpy(x.x, room + r * MMA_SUMS + c, sizeof x.x);
        if (added.data) {
            ndp_lanes y = ndp_get8(added, row + r, col + c);
            for (int k = 0; k < NDP_LANES; k++)
                x.x[k] += y.x[k];
        }
        ndp_set8(to, row + r, col + c, x);
    }
}

#endif
