/* heads_split, heads_merge: runs of columns to rows of their own and back. */
#include "ops/cuda/cuda_kernel.cuh"
#include "ops/cuda/cuda_kernels.hpp"

extern "C" {
#define inline __host__ __device__ inline /* kernels also call the functions of this header */
#include "ops/heads.h"
#undef inline
}

struct heads_split_each {
    ndp_heads h;
    ndp_view x, y;
    __device__ void operator()(int64_t r, int64_t c) const {
        int64_t part = ndp_div(r, x.rows), run = ndp_div(h.first + part, h.repeats);
        ndp_set8(y, r, c, ndp_get8(ndp_cut(x, run * h.width, h.width), r - part * x.rows, c));
    }
};
static ndp_status run_heads_split(const ndp_op_call *c) {
    return ndp_each8(c, &c->out[0], heads_split_each{ndp_heads_of(c->attr), c->in[0], c->out[0]});
}
NDP_CUDA_KERNEL(heads_split)

/* Run i of row t: the sum of the parts that have it, in order, rounded once. */
struct heads_merge_each {
    ndp_heads h;
    ndp_view y, x;
    int64_t runs;
    __device__ void operator()(int64_t r, int64_t c) const {
        int64_t t = ndp_div(r, runs), i = r - t * runs, low = i * h.repeats - h.first, high = low + h.repeats;
        ndp_lanes sum = {};
        for (int64_t p = low < 0 ? 0 : low; p < high && p < h.parts; p++) {
            ndp_lanes v = ndp_get8(y, p * x.rows + t, c);
            for (int k = 0; k < NDP_LANES; k++)
                sum.x[k] += v.x[k];
        }
        ndp_set8(ndp_cut(x, i * h.width, h.width), t, c, sum);
    }
};
static ndp_status run_heads_merge(const ndp_op_call *c) {
    ndp_heads h = ndp_heads_of(c->attr);
    const ndp_view *x = &c->out[0];
    int64_t runs = x->cols / h.width;
    return ndp_each8(c, x->rows * runs, h.width, heads_merge_each{h, c->in[0], *x, runs});
}
NDP_CUDA_KERNEL(heads_merge)
