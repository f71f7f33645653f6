/* gate_rows, gate_rows_dg, gate_by, gate_by_bwd. */
#include "ops/cuda/cuda_kernels.hpp"
#include "ops/cuda/cuda_rows.cuh"

struct gate_rows_each {
    ndp_view x, gate, y;
    __device__ void operator()(int64_t t, int64_t c) const {
        ndp_lanes v = ndp_get8(x, t, c);
        float s = ndp_sigmoid(ndp_get(gate, t, 0));
        for (int k = 0; k < NDP_LANES; k++)
            v.x[k] *= s;
        ndp_set8(y, t, c, v);
    }
};
static ndp_status run_gate_rows(const ndp_op_call *c) {
    return ndp_each8(c, &c->out[0], gate_rows_each{c->in[0], c->in[1], c->out[0]});
}
NDP_CUDA_KERNEL(gate_rows)

struct gate_rows_dg_of {
    static constexpr int PASSES = 1, SUMS = 1;
    ndp_view dy, x, gate, dgate;
    struct kept {
        ndp_raw dy, x;
    };
    __device__ kept read(const ndp_run &u, int c) const { return {ndp_load8(dy, u, c), ndp_load8(x, u, c)}; }
    __device__ float2 add(int, const ndp_run &, int, const kept &v, float2) const {
        return make_float2(ndp_dot8(ndp_widen(dy.dtype, v.dy), ndp_widen(x.dtype, v.x)), 0);
    }
    __device__ float2 finish(int, float2 sum, float2) const { return sum; }
    /* 1 - s(x) is s(-x), without the difference of equals where a gate is open. */
    __device__ void store(const ndp_run &u, float2 sum) const {
        float by = ndp_get(gate, u.t, 0);
        ndp_set(dgate, u.t, 0, ndp_sigmoid(by) * ndp_sigmoid(-by) * sum.x);
    }
    __device__ void write(const ndp_run &, int, const kept &, float2) const {}
};
static ndp_status run_gate_rows_dg(const ndp_op_call *c) {
    const ndp_view *x = &c->in[1];
    return ndp_rows(c, x->rows, x->cols, 1, gate_rows_dg_of{c->in[0], *x, c->in[2], c->out[0]});
}
NDP_CUDA_KERNEL(gate_rows_dg)

struct gate_by_each {
    ndp_view x, gate, y;
    bool sigmoid;
    __device__ void operator()(int64_t t, int64_t c) const {
        ndp_lanes v = ndp_get8(x, t, c), g = ndp_get8(gate, t, c);
        for (int k = 0; k < NDP_LANES; k++)
            v.x[k] *= ndp_sigmoid(g.x[k]) * (sigmoid ? 1.0f : g.x[k]);
        ndp_set8(y, t, c, v);
    }
};
static ndp_status run_gate_by(const ndp_op_call *c) {
    return ndp_each8(c, &c->out[0], gate_by_each{c->in[0], c->in[1], c->out[0], c->attr->sigmoid});
}
NDP_CUDA_KERNEL(gate_by)

struct gate_by_bwd_each {
    ndp_view dy, x, gate, dx, dgate;
    bool sigmoid;
    __device__ void operator()(int64_t t, int64_t c) const {
        ndp_lanes d = ndp_get8(dy, t, c), v = ndp_get8(x, t, c), g = ndp_get8(gate, t, c), to_x, to_gate;
        for (int k = 0; k < NDP_LANES; k++) {
            float s = ndp_sigmoid(g.x[k]), left = ndp_sigmoid(-g.x[k]);
            to_x.x[k] = d.x[k] * s * (sigmoid ? 1.0f : g.x[k]);
            to_gate.x[k] = d.x[k] * v.x[k] * (sigmoid ? s * left : s * (1.0f + g.x[k] * left));
        }
        if (dx.data)
            ndp_set8(dx, t, c, to_x);
        if (dgate.data)
            ndp_set8(dgate, t, c, to_gate);
    }
};
static ndp_status run_gate_by_bwd(const ndp_op_call *c) {
    return ndp_each8(c, &c->in[0],
                     gate_by_bwd_each{c->in[0], c->in[1], c->in[2], c->out[0], c->out[1], c->attr->sigmoid});
}
NDP_CUDA_KERNEL(gate_by_bwd)
