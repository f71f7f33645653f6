/* delta_decay and its gradients. */
#include "ops/cuda/cuda_columns.cuh"
#include "ops/cuda/cuda_kernels.hpp"

/* Of a row and eight heads: the rate, -exp(alog), and softplus of a + dt or its slope. */
struct decay_parts {
    ndp_view a, alog, dt;
    __device__ ndp_lanes rate(int64_t c) const {
        ndp_lanes v = ndp_get8(alog, 0, c);
        for (int k = 0; k < NDP_LANES; k++)
            v.x[k] = -expf(v.x[k]);
        return v;
    }
    __device__ ndp_lanes softplus(int64_t t, int64_t c, bool slope) const {
        ndp_lanes v = ndp_get8(a, t, c), shift = ndp_get8(dt, 0, c);
        for (int k = 0; k < NDP_LANES; k++) {
            float x = v.x[k] + shift.x[k];
            bool linear = x > NDP_SOFTPLUS_LINEAR;
            v.x[k] = slope ? (linear ? 1.0f : ndp_sigmoid(x)) : linear ? x : log1pf(expf(x));
        }
        return v;
    }
};

static __device__ __forceinline__ ndp_lanes times(ndp_lanes a, const ndp_lanes &b) {
    for (int k = 0; k < NDP_LANES; k++)
        a.x[k] *= b.x[k];
    return a;
}

struct delta_decay_each {
    decay_parts of;
    ndp_view g;
    __device__ void operator()(int64_t t, int64_t c) const {
        ndp_set8(g, t, c, times(of.rate(c), of.softplus(t, c, false)));
    }
};
static ndp_status run_delta_decay(const ndp_op_call *c) {
    return ndp_each8(c, &c->out[0], delta_decay_each{{c->in[0], c->in[1], c->in[2]}, c->out[0]});
}
NDP_CUDA_KERNEL(delta_decay)

/* What row t has of a gradient. */
struct decay_gradient {
    decay_parts of;
    ndp_view dg;
    bool slope;
    __device__ ndp_lanes operator()(int64_t t, int64_t, int64_t c) const {
        return times(times(of.rate(c), of.softplus(t, c, slope)), ndp_get8(dg, t, c));
    }
};
static decay_gradient gradient_of(const ndp_op_call *c, bool slope) {
    return {{c->in[1], c->in[2], c->in[3]}, c->in[0], slope};
}

struct delta_decay_da_each {
    decay_gradient of;
    ndp_view da;
    __device__ void operator()(int64_t t, int64_t c) const { ndp_set8(da, t, c, of(t, 0, c)); }
};
static ndp_status run_delta_decay_da(const ndp_op_call *c) {
    return ndp_each8(c, &c->out[0], delta_decay_da_each{gradient_of(c, true), c->out[0]});
}
NDP_CUDA_KERNEL(delta_decay_da)

static ndp_status run_delta_decay_dlog(const ndp_op_call *c) {
    return ndp_columns(c, c->in[0].rows, gradient_of(c, false));
}
NDP_CUDA_KERNEL_WITH_SCRATCH(delta_decay_dlog)
static ndp_status run_delta_decay_ddt(const ndp_op_call *c) {
    return ndp_columns(c, c->in[0].rows, gradient_of(c, true));
}
NDP_CUDA_KERNEL_WITH_SCRATCH(delta_decay_ddt)
