/* How a launch over a table of pieces (ops/pieces.h) is shared between blocks. The table lies in the device's memory,
 * so the host knows the number of pieces and of elements only: it launches as many blocks as they could need, and a
 * block finds its part of a piece by searching the table. */
#ifndef NDP_OPS_CUDA_CUDA_PIECES_CUH
#define NDP_OPS_CUDA_CUDA_PIECES_CUH

#include "ops/cuda/cuda_kernel.cuh"
#include "ops/rounding.h"
extern "C" {
#include "base/arena.h"
#include "ops/update.h"
#define inline __host__ __device__ inline /* kernels also call the functions of this header */
#include "ops/pieces.h"
#undef inline
}

/* Part `part` of piece `index`. */
struct ndp_piece_part {
    int64_t index, part;
    const int64_t *piece; /* its row of the table */
};

/* Blocks for pieces of together at most n elements, in parts of at least `length`, except the last of each piece. */
static inline int64_t ndp_piece_blocks(const ndp_view *pieces, int64_t n, int64_t length) {
    return pieces->rows > 0 ? n / length + pieces->rows : 0;
}

/* Finds the part of a block when `parts(count)` blocks work on a piece of `count` elements. False: the block has none.
 * Each warp searches: a lane reads a row, and prefix sums over the warp say which piece the block belongs to. */
template <typename F>
static __device__ __forceinline__ bool ndp_find_part(const ndp_view &pieces, int64_t block, F parts,
                                                     ndp_piece_part *out) {
    int lane = threadIdx.x % NDP_WARP;
    for (int64_t base = 0; base < pieces.rows; base += NDP_WARP) {
        int64_t row = base + lane;
        int64_t own = row < pieces.rows ? parts(ndp_piece_at(&pieces, row)[NDP_PIECE_COUNT]) : 0, end = own;
        for (int by = 1; by < NDP_WARP; by *= 2) {
            int64_t before = __shfl_up_sync(0xffffffffu, end, by);
            end += lane >= by ? before : 0;
        }
        unsigned after = __ballot_sync(0xffffffffu, block < end);
        if (after) {
            int at = __ffs((int)after) - 1;
            out->index = base + at;
            out->part = block - __shfl_sync(0xffffffffu, end - own, at);
            out->piece = ndp_piece_at(&pieces, out->index);
            return true;
        }
        block -= __shfl_sync(0xffffffffu, end, NDP_WARP - 1);
    }
    return false;
}

/* ---- what updates share ---- */

/* Moments too small to matter become 0. */
static __device__ __forceinline__ float ndp_flush_moment(float x) {
    return x < (float)NDP_TINY_MOMENT && x > -(float)NDP_TINY_MOMENT ? 0.0f : x;
}

/* The constants of AdamW in fp32. */
struct ndp_adamw_constants {
    float keep, new1, old2, new2, rate, unbias, eps;
    __device__ ndp_adamw_constants(const double *k) {
        keep = (float)k[NDP_ADAMW_KEEP];
        new1 = (float)k[NDP_ADAMW_NEW1];
        old2 = (float)k[NDP_ADAMW_OLD2];
        new2 = (float)(1 - k[NDP_ADAMW_OLD2]);
        rate = (float)k[NDP_ADAMW_RATE];
        unbias = (float)k[NDP_ADAMW_UNBIAS];
        eps = (float)k[NDP_ADAMW_EPS];
    }
};

#endif
