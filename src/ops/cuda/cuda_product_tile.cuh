/* A tile of a product, by a block: what the kernels of products of our own share. Operands are widened to fp32 as they
 * are read. Each element of the result is summed by one thread over k in order, so equal calls give equal bits; the
 * sums of DEPTH products each are added up, so that rounding grows with their number, not with k. */
#ifndef NDP_OPS_CUDA_CUDA_PRODUCT_TILE_CUH
#define NDP_OPS_CUDA_CUDA_PRODUCT_TILE_CUH

#include "ops/cuda/cuda_kernel.cuh"

/* A block makes TILE x TILE elements of the result, a thread EACH x EACH of them, SIDE rows and columns apart; DEPTH of
 * k pass through shared memory at once. Rows there have a float more, so that threads of a warp use different banks. */
enum { TILE = 64, DEPTH = 16, EACH = 4, SIDE = TILE / EACH, THREADS = SIDE * SIDE, LD = TILE + 1 };
enum { TILE_BYTES = 2 * DEPTH * LD * sizeof(float) }; /* of shared memory */

/* op(data), [size, k]; `along`: it is stored so, else transposed. */
struct ndp_tile_operand {
    ndp_view data;
    bool along;
    int64_t size;
};

/* to [DEPTH, TILE]: rows first.. and columns k.. of x, zeros from `depth` and beyond its end. Neighbouring threads read
 * neighbours. */
static __device__ __forceinline__ void load_tile(float *to, const ndp_tile_operand &x, int64_t first, int64_t k,
                                                 int64_t depth) {
    for (int i = (int)threadIdx.x; i < TILE * DEPTH; i += THREADS) {
        int r = x.along ? i / DEPTH : i % TILE, l = x.along ? i % DEPTH : i / TILE;
        bool there = first + r < x.size && k + l < depth;
        to[l * LD + r] = !there    ? 0.0f
                         : x.along ? ndp_get(x.data, first + r, k + l)
                                   : ndp_get(x.data, k + l, first + r);
    }
}

/* sums += the products of a and b over k from `from` to `to` - 1, for the tile at (row, col). All threads of the block
 * call it. Thread t's sums are of rows row + t / SIDE + i SIDE and columns col + t % SIDE + j SIDE. */
static __device__ __forceinline__ void sum_tile(float (&sums)[EACH][EACH], const ndp_tile_operand &a,
                                                const ndp_tile_operand &b, int64_t row, int64_t col, int64_t from,
                                                int64_t to) {
    float *packed_a = (float *)ndp_shared_bytes, *packed_b = packed_a + DEPTH * LD;
    int r = (int)threadIdx.x / SIDE, c = (int)threadIdx.x % SIDE;
    for (int64_t k = from; k < to; k += DEPTH) {
        float part[EACH][EACH] = {};
        load_tile(packed_a, a, row, k, to);
        load_tile(packed_b, b, col, k, to);
        __syncthreads();
        for (int l = 0; l < DEPTH; l++)
            for (int i = 0; i < EACH; i++)
                for (int j = 0; j < EACH; j++)
                    part[i][j] += packed_a[l * LD + r + i * SIDE] * packed_b[l * LD + c + j * SIDE];
        __syncthreads();
        for (int i = 0; i < EACH; i++)
            for (int j = 0; j < EACH; j++)
                sums[i][j] += part[i][j];
    }
}

#endif
