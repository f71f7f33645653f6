/* Products by a kernel of our own: slower than the library's, and there is one for all of them. */
#include "ops/cuda/cuda_product.hpp"
#include "ops/cuda/cuda_product_tile.cuh"

#include <cstdio>
#include <mutex>

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
    float sums[EACH][EACH] = {};
    int64_t row = blockIdx.x / across * TILE, col = blockIdx.x % across * TILE;
    int r = (int)threadIdx.x / SIDE, c = (int)threadIdx.x % SIDE;
    sum_tile(sums, {p.a, !p.trans_a, p.to.rows}, {p.b, p.trans_b, p.to.cols}, row, col, 0, depth);
    store_tile(p, sums, row + r, col + c);
}

/* ---- how many there were ---- */

static std::mutex lock;
static long submitted;
static char first_text[128];

static const char *type_text(const ndp_view &v) { return v.dtype == NDP_BF16 ? "bf16" : "fp32"; }

static void count(const ndp_op_call *c, const ndp_cuda_product &p) {
    std::lock_guard<std::mutex> hold(lock);
    if (submitted++ == 0)
        snprintf(first_text, sizeof first_text, "%s, %s [%lld,%lld] = %s times %s over %lld", c->op->name,
                 type_text(p.to), (long long)p.to.rows, (long long)p.to.cols, type_text(p.a), type_text(p.b),
                 (long long)(p.trans_a ? p.a.rows : p.a.cols));
}

long ndp_cuda_plain_products(char *first, size_t room) {
    std::lock_guard<std::mutex> hold(lock);
    if (submitted > 0)
        snprintf(first, room, "%s", first_text);
    return submitted;
}

ndp_status ndp_cuda_multiply_plain(const ndp_op_call *c, const ndp_cuda_product &p) {
    count(c, p);
    int64_t down = ndp_ceil_div(p.to.rows, TILE), across = ndp_ceil_div(p.to.cols, TILE);
    return ndp_launch(c, ndp_product_kernel, dim3((unsigned)(down * across)), dim3(THREADS), TILE_BYTES, p,
                      p.trans_a ? p.a.rows : p.a.cols, across);
}
