/* add, add_bias, add_columns. */
#include "ops/cuda/cuda_kernel.cuh"
#include "ops/cuda/cuda_kernels.hpp"

struct add_each {
    ndp_view a, b, sum;
    int by_row; /* 0: b is one row for all */
    __device__ void operator()(int64_t r, int64_t c) const {
        ndp_raw p = ndp_load8(a, r, c), q = ndp_load8(b, by_row * r, c);
        ndp_lanes v = ndp_widen(a.dtype, p), w = ndp_widen(b.dtype, q);
        for (int k = 0; k < NDP_LANES; k++)
            v.x[k] += w.x[k];
        ndp_set8(sum, r, c, v);
    }
};
static ndp_status run_add(const ndp_op_call *c) {
    return ndp_each8(c, &c->out[0], add_each{c->in[0], c->in[1], c->out[0], 1});
}
NDP_CUDA_KERNEL(add)
static ndp_status run_add_bias(const ndp_op_call *c) {
    return ndp_each8(c, &c->in[0], add_each{c->in[0], c->in[1], c->in[0], 0});
}
NDP_CUDA_KERNEL(add_bias)

struct add_columns_each {
    ndp_view y, z;
    int64_t first;
    __device__ void operator()(int64_t r, int64_t c) const {
        ndp_view to = ndp_cut(y, first, z.cols);
        ndp_raw p = ndp_load8(to, r, c), q = ndp_load8(z, r, c);
        ndp_lanes v = ndp_widen(y.dtype, p), w = ndp_widen(z.dtype, q);
        for (int k = 0; k < NDP_LANES; k++)
            v.x[k] += w.x[k];
        ndp_set8(to, r, c, v);
    }
};
static ndp_status run_add_columns(const ndp_op_call *c) {
    return ndp_each8(c, &c->in[1], add_columns_each{c->in[0], c->in[1], c->attr->first});
}
NDP_CUDA_KERNEL(add_columns)
