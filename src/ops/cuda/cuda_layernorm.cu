/* layernorm and its gradients. */
#include "ops/cuda/cuda_columns.cuh"
#include "ops/cuda/cuda_kernels.hpp"
#include "ops/cuda/cuda_rows.cuh"

/* y = (x - mean) rstd w + b. The variance is of differences from the mean. stats: mean, rstd. */
struct layernorm_of {
    static constexpr int PASSES = 2, SUMS = 1;
    ndp_view x, w, b, y, stats;
    float eps;
    typedef ndp_raw kept;
    __device__ ndp_raw read(const ndp_run &u, int c) const { return ndp_load8(x, u, c); }
    __device__ float2 add(int pass, const ndp_run &, int c, const ndp_raw &raw, float2 known) const {
        ndp_lanes v = ndp_widen(x.dtype, raw);
        float sum = 0;
        for (int k = 0; k < NDP_LANES; k++) {
            float d = c + k < (int)x.cols ? v.x[k] - known.x : 0.0f;
            sum += pass == 0 ? d : d * d;
        }
        return make_float2(sum, 0);
    }
    __device__ float2 finish(int pass, float2 sum, float2 known) const {
        float mean = sum.x / (float)x.cols;
        return pass == 0 ? make_float2(mean, 0) : make_float2(known.x, 1.0f / sqrtf(mean + eps));
    }
    __device__ void store(const ndp_run &u, float2 known) const {
        ndp_set(stats, u.t, 0, known.x);
        ndp_set(stats, u.t, 1, known.y);
    }
    __device__ void write(const ndp_run &u, int c, const ndp_raw &raw, float2 known) const {
        ndp_lanes v = ndp_widen(x.dtype, raw), by = ndp_get8(w, 0, c), plus = {};
        if (b.data)
            plus = ndp_get8(b, 0, c);
        for (int k = 0; k < NDP_LANES; k++)
            v.x[k] = (v.x[k] - known.x) * known.y * by.x[k] + plus.x[k];
        ndp_set8(y, u.t, c, v);
    }
};
static ndp_status run_layernorm(const ndp_op_call *c) {
    const ndp_view *x = &c->in[0];
    layernorm_of f = {*x, c->in[1], c->in[2], c->out[0], c->out[1], (float)c->attr->eps};
    return ndp_rows(c, x->rows, x->cols, 1, f);
}
NDP_CUDA_KERNEL(layernorm)

/* With g = dy w and z = (x - mean) rstd: dx = acc + rstd (g - mean(g) - z mean(g z)). */
struct layernorm_dx_of {
    static constexpr int PASSES = 1, SUMS = 2;
    ndp_view dy, x, w, stats, acc, dx;
    struct kept {
        ndp_raw dy, x;
    };
    /* *g and *z of eight columns. */
    __device__ void terms(const ndp_run &u, int c, const kept &v, ndp_lanes *g, ndp_lanes *z) const {
        ndp_lanes by = ndp_get8(w, 0, c);
        float mean = ndp_get(stats, u.t, 0), rstd = ndp_get(stats, u.t, 1);
        *g = ndp_widen(dy.dtype, v.dy), *z = ndp_widen(x.dtype, v.x);
        for (int k = 0; k < NDP_LANES; k++)
            g->x[k] *= by.x[k], z->x[k] = (z->x[k] - mean) * rstd;
    }
    __device__ kept read(const ndp_run &u, int c) const { return {ndp_load8(dy, u, c), ndp_load8(x, u, c)}; }
    __device__ float2 add(int, const ndp_run &u, int c, const kept &v, float2) const {
        ndp_lanes g, z;
        float2 sum = make_float2(0, 0);
        terms(u, c, v, &g, &z);
        for (int k = 0; k < NDP_LANES; k++)
            sum.x += g.x[k], sum.y += g.x[k] * z.x[k];
        return sum;
    }
    __device__ float2 finish(int, float2 sum, float2) const {
        return make_float2(sum.x / (float)x.cols, sum.y / (float)x.cols);
    }
    __device__ void store(const ndp_run &, float2) const {}
    __device__ void write(const ndp_run &u, int c, const kept &v, float2 mean) const {
        ndp_lanes g, z, sum = {};
        if (acc.data)
            sum = ndp_get8(acc, u.t, c);
        float rstd = ndp_get(stats, u.t, 1);
        terms(u, c, v, &g, &z);
        for (int k = 0; k < NDP_LANES; k++)
            sum.x[k] += rstd * (g.x[k] - mean.x - z.x[k] * mean.y);
        ndp_set8(dx, u.t, c, sum);
    }
};
static ndp_status run_layernorm_dx(const ndp_op_call *c) {
    const ndp_view *dy = &c->in[0];
    layernorm_dx_of f = {*dy, c->in[1], c->in[2], c->in[3], c->in[4], c->out[0]};
    return ndp_rows(c, dy->rows, dy->cols, 1, f);
}
NDP_CUDA_KERNEL(layernorm_dx)

struct layernorm_dw_of {
    ndp_view dy, x, stats;
    __device__ ndp_lanes operator()(int64_t t, int64_t, int64_t c) const {
        ndp_raw p = ndp_load8(dy, t, c), q = ndp_load8(x, t, c);
        float mean = ndp_get(stats, t, 0), rstd = ndp_get(stats, t, 1);
        ndp_lanes d = ndp_widen(dy.dtype, p), v = ndp_widen(x.dtype, q);
        for (int k = 0; k < NDP_LANES; k++)
            d.x[k] *= (v.x[k] - mean) * rstd;
        return d;
    }
};
static ndp_status run_layernorm_dw(const ndp_op_call *c) {
    return ndp_columns(c, c->in[0].rows, layernorm_dw_of{c->in[0], c->in[1], c->in[2]});
}
NDP_CUDA_KERNEL_WITH_SCRATCH(layernorm_dw)
