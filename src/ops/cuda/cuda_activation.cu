/* gelu and the gates, and their gradients. All operands are loaded before one is widened, so that the loads are under
 * way together. */
#include "ops/cuda/cuda_kernel.cuh"
#include "ops/cuda/cuda_kernels.hpp"

/* By tanh; *slope: the derivative. */
static __device__ __forceinline__ float gelu_of(float x, float *slope) {
    const float by = 0.7978845608028654f; /* sqrt(2 / pi) */
    float t = tanhf(by * (x + 0.044715f * x * x * x));
    *slope = 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * by * (1.0f + 3.0f * 0.044715f * x * x);
    return 0.5f * x * (1.0f + t);
}

static __device__ __forceinline__ float silu_of(float x, float *slope) {
    float s = ndp_sigmoid(x);
    *slope = s * (1.0f + x * (1.0f - s));
    return x * s;
}

static __device__ __forceinline__ float gelu_erf_of(float x, float *slope) {
    float below = 0.5f * erfcf(-0.7071067811865475f * x); /* the part of a normal distribution */
    *slope = below + 0.3989422804014327f * x * expf(-0.5f * x * x);
    return x * below;
}

template <bool ERF> static __device__ __forceinline__ float plain_of(float x, float *slope) {
    return ERF ? gelu_erf_of(x, slope) : gelu_of(x, slope);
}

template <bool ERF> struct gelu_each {
    ndp_view x, y;
    __device__ void operator()(int64_t r, int64_t c) const {
        ndp_lanes v = ndp_get8(x, r, c);
        float slope;
        for (int k = 0; k < NDP_LANES; k++)
            v.x[k] = plain_of<ERF>(v.x[k], &slope);
        ndp_set8(y, r, c, v);
    }
};
static ndp_status run_gelu(const ndp_op_call *c) {
    return ndp_each8(c, &c->out[0], gelu_each<false>{c->in[0], c->out[0]});
}
NDP_CUDA_KERNEL(gelu)
static ndp_status run_gelu_erf(const ndp_op_call *c) {
    return ndp_each8(c, &c->out[0], gelu_each<true>{c->in[0], c->out[0]});
}
NDP_CUDA_KERNEL(gelu_erf)

template <bool ERF> struct gelu_bwd_each {
    ndp_view dy, x, dx;
    __device__ void operator()(int64_t r, int64_t c) const {
        ndp_raw p = ndp_load8(dy, r, c), q = ndp_load8(x, r, c);
        ndp_lanes d = ndp_widen(dy.dtype, p), v = ndp_widen(x.dtype, q);
        for (int k = 0; k < NDP_LANES; k++) {
            float slope;
            plain_of<ERF>(v.x[k], &slope);
            d.x[k] *= slope;
        }
        ndp_set8(dx, r, c, d);
    }
};
static ndp_status run_gelu_bwd(const ndp_op_call *c) {
    return ndp_each8(c, &c->out[0], gelu_bwd_each<false>{c->in[0], c->in[1], c->out[0]});
}
NDP_CUDA_KERNEL(gelu_bwd)
static ndp_status run_gelu_erf_bwd(const ndp_op_call *c) {
    return ndp_each8(c, &c->out[0], gelu_bwd_each<true>{c->in[0], c->in[1], c->out[0]});
}
NDP_CUDA_KERNEL(gelu_erf_bwd)

/* x [T,2N] is gate and up. */
template <bool GELU> static __device__ __forceinline__ float gate_of(float x, float *slope) {
    return GELU ? gelu_of(x, slope) : silu_of(x, slope);
}

template <bool GELU> struct gate_each {
    ndp_view x, y;
    __device__ void operator()(int64_t r, int64_t c) const {
        ndp_raw p = ndp_load8(ndp_cut(x, 0, y.cols), r, c), q = ndp_load8(ndp_cut(x, y.cols, y.cols), r, c);
        ndp_lanes g = ndp_widen(x.dtype, p), u = ndp_widen(x.dtype, q);
        float slope;
        for (int k = 0; k < NDP_LANES; k++)
            g.x[k] = gate_of<GELU>(g.x[k], &slope) * u.x[k];
        ndp_set8(y, r, c, g);
    }
};
static ndp_status run_swiglu(const ndp_op_call *c) {
    return ndp_each8(c, &c->out[0], gate_each<false>{c->in[0], c->out[0]});
}
NDP_CUDA_KERNEL(swiglu)
static ndp_status run_geglu(const ndp_op_call *c) {
    return ndp_each8(c, &c->out[0], gate_each<true>{c->in[0], c->out[0]});
}
NDP_CUDA_KERNEL(geglu)

template <bool GELU> struct gate_bwd_each {
    ndp_view dy, x, dx;
    __device__ void operator()(int64_t r, int64_t c) const {
        ndp_raw p = ndp_load8(dy, r, c), q = ndp_load8(ndp_cut(x, 0, dy.cols), r, c),
                s = ndp_load8(ndp_cut(x, dy.cols, dy.cols), r, c);
        ndp_lanes d = ndp_widen(dy.dtype, p), g = ndp_widen(x.dtype, q), u = ndp_widen(x.dtype, s), up;
        for (int k = 0; k < NDP_LANES; k++) {
            float slope;
            up.x[k] = d.x[k] * gate_of<GELU>(g.x[k], &slope);
            g.x[k] = d.x[k] * u.x[k] * slope;
        }
        ndp_set8(ndp_cut(dx, 0, dy.cols), r, c, g);
        ndp_set8(ndp_cut(dx, dy.cols, dy.cols), r, c, up);
    }
};
static ndp_status run_swiglu_bwd(const ndp_op_call *c) {
    return ndp_each8(c, &c->in[0], gate_bwd_each<false>{c->in[0], c->in[1], c->out[0]});
}
NDP_CUDA_KERNEL(swiglu_bwd)
static ndp_status run_geglu_bwd(const ndp_op_call *c) {
    return ndp_each8(c, &c->in[0], gate_bwd_each<true>{c->in[0], c->in[1], c->out[0]});
}
NDP_CUDA_KERNEL(geglu_bwd)

/* x [T,2N] is gate and up in turn: eight columns of the result are sixteen of it. */
static __device__ __forceinline__ void clipped_get(const ndp_view &x, int64_t r, int64_t c, float cap, ndp_lanes *g,
                                                   ndp_lanes *u, bool *cut_g, bool *cut_u) {
    for (int k = 0; k < NDP_LANES; k++) {
        bool there = 2 * (c + k) + 1 < x.cols;
        float gate = there ? ndp_get(x, r, 2 * (c + k)) : 0.0f, up = there ? ndp_get(x, r, 2 * (c + k) + 1) : 0.0f;
        cut_g[k] = gate > cap, cut_u[k] = up > cap || up < -cap;
        g->x[k] = cut_g[k] ? cap : gate, u->x[k] = up > cap ? cap : up < -cap ? -cap : up;
    }
}

struct clipped_each {
    ndp_view x, y;
    float by, cap;
    __device__ void operator()(int64_t r, int64_t c) const {
        ndp_lanes g, u;
        bool cut[2][NDP_LANES];
        clipped_get(x, r, c, cap, &g, &u, cut[0], cut[1]);
        for (int k = 0; k < NDP_LANES; k++)
            g.x[k] *= (u.x[k] + 1.0f) * ndp_sigmoid(by * g.x[k]);
        ndp_set8(y, r, c, g);
    }
};
static ndp_status run_swiglu_clipped(const ndp_op_call *c) {
    return ndp_each8(c, &c->out[0], clipped_each{c->in[0], c->out[0], (float)c->attr->scale, (float)c->attr->cap});
}
NDP_CUDA_KERNEL(swiglu_clipped)

struct clipped_bwd_each {
    ndp_view dy, x, dx;
    float by, cap;
    __device__ void operator()(int64_t r, int64_t c) const {
        ndp_lanes g, u, d = ndp_get8(dy, r, c);
        bool cut[2][NDP_LANES];
        clipped_get(x, r, c, cap, &g, &u, cut[0], cut[1]);
        for (int k = 0; k < NDP_LANES && c + k < dy.cols; k++) {
            float s = ndp_sigmoid(by * g.x[k]);
            float dg = d.x[k] * (u.x[k] + 1.0f) * s * (1.0f + by * g.x[k] * (1.0f - s));
            ndp_set(dx, r, 2 * (c + k), cut[0][k] ? 0.0f : dg);
            ndp_set(dx, r, 2 * (c + k) + 1, cut[1][k] ? 0.0f : d.x[k] * g.x[k] * s);
        }
    }
};
static ndp_status run_swiglu_clipped_bwd(const ndp_op_call *c) {
    return ndp_each8(c, &c->in[0],
                     clipped_bwd_each{c->in[0], c->in[1], c->out[0], (float)c->attr->scale, (float)c->attr->cap});
}
NDP_CUDA_KERNEL(swiglu_clipped_bwd)
