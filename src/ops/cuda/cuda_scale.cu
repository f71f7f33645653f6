/* scale, scale_by, cap. */
#include "ops/cuda/cuda_kernel.cuh"
#include "ops/cuda/cuda_kernels.hpp"

struct scale_each {
    ndp_view x;
    float by;
    __device__ void operator()(int64_t r, int64_t c) const {
        ndp_lanes v = ndp_get8(x, r, c);
        for (int k = 0; k < NDP_LANES; k++)
            v.x[k] *= by;
        ndp_set8(x, r, c, v);
    }
};
static ndp_status run_scale(const ndp_op_call *c) {
    return ndp_each8(c, &c->in[0], scale_each{c->in[0], (float)c->attr->scale});
}
NDP_CUDA_KERNEL(scale)

struct scale_by_each {
    ndp_view x, by;
    __device__ void operator()(int64_t r, int64_t c) const {
        ndp_lanes v = ndp_get8(x, r, c);
        float times = ndp_get(by, 0, 0);
        for (int k = 0; k < NDP_LANES; k++)
            v.x[k] *= times;
        ndp_set8(x, r, c, v);
    }
};
static ndp_status run_scale_by(const ndp_op_call *c) {
    return ndp_each8(c, &c->in[0], scale_by_each{c->in[0], c->in[1]});
}
NDP_CUDA_KERNEL(scale_by)

struct cap_each {
    ndp_view x;
    float cap;
    __device__ void operator()(int64_t r, int64_t c) const {
        ndp_lanes v = ndp_get8(x, r, c);
        for (int k = 0; k < NDP_LANES; k++)
            v.x[k] = cap * tanhf(v.x[k] / cap);
        ndp_set8(x, r, c, v);
    }
};
static ndp_status run_cap(const ndp_op_call *c) {
    return ndp_each8(c, &c->in[0], cap_each{c->in[0], (float)c->attr->cap});
}
NDP_CUDA_KERNEL(cap)
