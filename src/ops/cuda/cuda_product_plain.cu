/* Products by a kernel of our own: slower than the library's, and there is one for all of them. Operands are widened to
 * fp32 as they are read. Each element of the result is summed by one thread over k in order, so equal calls give equal
 * bits; the sums of DEPTH products each are added up, so that rounding grows with their number, not with k. */
#include "ops/cuda/cuda_kernel.cuh"
#include "ops/cuda/cuda_product.hpp"

/* A block makes TILE x TILE elements of the result, a thread EACH x EACH of them; DEPTH of k pass through shared memory
 * at once. Rows there have a float more, so that threads of a warp use different banks. */
enum { TILE = 64, DEPTH = 16, EACH = 4, SIDE = TILE / EACH, THREADS = SIDE * SIDE, LD = TILE + 1 };

/* to [DEPTH, TILE]: rows first.. and columns k.. of op(x), which is [rows, depth], zeros beyond its end. `along`: it is
 * stored so, else transposed. Neighbouring threads read neighbours. */
static __device__ __forceinline__ void load_tile(float *to, const ndp_view &x, bool along, int64_t first, int64_t rows,
                                                 int64_t k, int64_t depth) {
    for (int i = (int)threadIdx.x; i < TILE * DEPTH; i += THREADS) {
        int r = along ? i / DEPTH : i % TILE, l = along ? i % DEPTH : i / TILE;
        bool there = first + r < rows && k + l < depth;
        to[l * LD + r] = !there ? 0.0f : along ? ndp_get(x, first + r, k + l) : ndp_get(x, k + l, first + r);
    }
}

static __device__ __forceinline__ void store_tile(const ndp_cuda_product &p, const float (&sums)[EACH][EACH],
                                                  int64_t row, int64_t col) {
    for (int i = 0; i < EACH; i++)
        for (int j = 0; j < EACH; j++) {
            int64_t r = row + i * SIDE, c = col + j * SIDE;
            if (r >= p.to.rows || c >= p.to.cols)
                continue;
            float x = p.alpha * sums[i][j];
            if (p.added.data)
                x += p.beta * ndp_get(p.added, r, c);
            if (p.bias.data)
                x += ndp_get(p.bias, 0, c);
            ndp_set(p.to, r, c, x);
        }
}

static __global__ void __launch_bounds__(THREADS)
    ndp_product_kernel(const ndp_cuda_product p, int64_t depth, int64_t across) {
    float *a = (float *)ndp_shared_bytes, *b = a + DEPTH * LD, sums[EACH][EACH] = {};
    int64_t row = blockIdx.x / across * TILE, col = blockIdx.x % across * TILE;
    int r = (int)threadIdx.x / SIDE, c = (int)threadIdx.x % SIDE;
    for (int64_t k = 0; k < depth; k += DEPTH) {
        float part[EACH][EACH] = {};
        load_tile(a, p.a, !p.trans_a, row, p.to.rows, k, depth);
        load_tile(b, p.b, p.trans_b, col, p.to.cols, k, depth);
        __syncthreads();
        for (int l = 0; l < DEPTH; l++)
            for (int i = 0; i < EACH; i++)
                for (int j = 0; j < EACH; j++)
                    part[i][j] += a[l * LD + r + i * SIDE] * b[l * LD + c + j * SIDE];
        __syncthreads();
        for (int i = 0; i < EACH; i++)
            for (int j = 0; j < EACH; j++)
                sums[i][j] += part[i][j];
    }
    store_tile(p, sums, row + r, col + c);
}

ndp_status ndp_cuda_multiply_plain(const ndp_op_call *c, const ndp_cuda_product &p) {
    int64_t down = ndp_ceil_div(p.to.rows, TILE), across = ndp_ceil_div(p.to.cols, TILE);
    return ndp_launch(c, ndp_product_kernel, dim3((unsigned)(down * across)), dim3(THREADS),
                      2 * DEPTH * LD * sizeof(float), p, p.trans_a ? p.a.rows : p.a.cols, across);
}
