/* square_sum.
 *
 * The additions are those of `ref` in their order: NDP_SQUARE_LANES sums a part, parts in order, pieces in order. So
 * sums of fp32 have the same bits on all devices. A block adds up a part: all of its threads load, one thread a lane
 * adds. A second launch adds the parts of each piece, one thread a piece, and then the pieces. */
#include "ops/cuda/cuda_kernels.hpp"
#include "ops/cuda/cuda_pieces.cuh"

enum { SUM_THREADS = 1024 };

/* ---- parts ---- */

struct parts_of_squares {
    __device__ int64_t operator()(int64_t count) const {
        return count > 0 ? (count + ndp_square_part(count) - 1) / ndp_square_part(count) : 0;
    }
};

/* Elements [first, grad.cols) of the row. `tile`: room for 8 floats a thread. The columns after the last one read as
 * 0, which changes no sum. */
static __device__ __forceinline__ double lane_of_squares(const ndp_view &grad, int64_t first, float *tile) {
    const int step = (int)blockDim.x * NDP_LANES, own = (int)threadIdx.x * NDP_LANES;
    double sum = 0;
    ndp_lanes next = ndp_get8(grad, 0, first + own);
    for (int64_t at = first; at < grad.cols; at += step) {
        __syncthreads();
        ((float4 *)(tile + own))[0] = make_float4(next.x[0], next.x[1], next.x[2], next.x[3]);
        ((float4 *)(tile + own))[1] = make_float4(next.x[4], next.x[5], next.x[6], next.x[7]);
        __syncthreads();
        next = ndp_get8(grad, 0, at + step + own);
        if (threadIdx.x < NDP_SQUARE_LANES)
            for (int i = 0; i < step; i += 8 * NDP_SQUARE_LANES)
                for (int k = 0; k < 8; k++) { /* a constant number, so that the loads are under way together */
                    double x = tile[i + k * NDP_SQUARE_LANES + (int)threadIdx.x];
                    sum += x * x;
                }
    }
    return sum;
}

/* partial[NDP_SQUARE_PARTS * i + p]: the squares of part p of piece i. */
__global__ void ndp_square_parts_kernel(ndp_view grad, ndp_view pieces, double *partial) {
    ndp_piece_part p;
    if (!ndp_find_part(pieces, blockIdx.x, parts_of_squares(), &p))
        return;
    double *lanes = (double *)ndp_shared_bytes;
    int64_t count = p.piece[NDP_PIECE_COUNT], length = ndp_square_part(count), first = p.part * length;
    grad.cols = p.piece[NDP_PIECE_FIRST] + (first + length < count ? first + length : count);
    double lane = lane_of_squares(grad, p.piece[NDP_PIECE_FIRST] + first, (float *)(lanes + NDP_SQUARE_LANES));
    if (threadIdx.x < NDP_SQUARE_LANES)
        lanes[threadIdx.x] = lane;
    __syncthreads();
    if (threadIdx.x > 0)
        return;
    double sum = 0;
    for (int j = 0; j < NDP_SQUARE_LANES; j++)
        sum += lanes[j];
    partial[NDP_SQUARE_PARTS * p.index + p.part] = sum;
}

/* ---- their sum ---- */

/* Adds n numbers in their order; 16 loads at a time are under way. */
static __device__ __forceinline__ double add_in_order(double sum, const double *x, int64_t n) {
    for (int64_t i = 0; i < n; i += 16) {
        double some[16];
        for (int k = 0; k < 16; k++)
            some[k] = i + k < n ? x[i + k] : 0;
        for (int k = 0; k < 16; k++)
            sum += some[k];
    }
    return sum;
}

/* piece_sums[i]: the squares of piece i over its copies. */
__global__ void ndp_square_total_kernel(ndp_view pieces, const double *partial, double *piece_sums, double *total,
                                        bool accumulate) {
    for (int64_t i = threadIdx.x; i < pieces.rows; i += blockDim.x) {
        const int64_t *piece = ndp_piece_at(&pieces, i);
        double sum = add_in_order(0, partial + NDP_SQUARE_PARTS * i, parts_of_squares()(piece[NDP_PIECE_COUNT]));
        piece_sums[i] = sum / (double)ndp_piece_copies(piece);
    }
    __syncthreads();
    if (threadIdx.x == 0)
        *total = add_in_order(accumulate ? *total : 0, piece_sums, pieces.rows);
}

static ndp_status run_square_sum(const ndp_op_call *c) {
    const ndp_view *grad = &c->in[0], *pieces = &c->in[1];
    double *partial = (double *)c->scratch, *piece_sums = partial + NDP_SQUARE_PARTS * pieces->rows;
    unsigned threads = ndp_block_of(ndp_square_part(grad->cols) / NDP_LANES, 128);
    int64_t blocks = ndp_piece_blocks(pieces, grad->cols, NDP_SEGMENT_ALIGN);
    if (blocks > pieces->rows * NDP_SQUARE_PARTS)
        blocks = pieces->rows * NDP_SQUARE_PARTS;
    NDP_TRY(ndp_launch(c, ndp_square_parts_kernel, dim3((unsigned)blocks), dim3(threads),
                       NDP_SQUARE_LANES * sizeof(double) + threads * NDP_LANES * sizeof(float), *grad, *pieces,
                       partial));
    return ndp_launch(c, ndp_square_total_kernel, dim3(1), dim3(ndp_block_of(pieces->rows, SUM_THREADS)), 0, *pieces,
                      partial, piece_sums, (double *)c->out[0].data, c->attr->accumulate);
}
NDP_CUDA_KERNEL_WITH_SCRATCH(square_sum)
