/* mean_squares, norm_by and their gradients. */
#include "ops/cuda/cuda_kernels.hpp"
#include "ops/cuda/cuda_rows.cuh"

struct mean_squares_of {
    static constexpr int PASSES = 1, SUMS = 1;
    ndp_view x, m;
    float scale;
    typedef ndp_raw kept;
    __device__ ndp_raw read(const ndp_run &u, int c) const { return ndp_load8(x, u, c); }
    __device__ float2 add(int, const ndp_run &, int c, const ndp_raw &v, float2) const {
        return ndp_squares8(ndp_widen(x.dtype, v), c, (int)x.cols);
    }
    __device__ float2 finish(int, float2 sum, float2) const { return make_float2(sum.x * scale, 0); }
    __device__ void store(const ndp_run &u, float2 stats) const { ndp_set(m, u.t, 0, stats.x); }
    __device__ void write(const ndp_run &, int, const ndp_raw &, float2) const {}
};
static ndp_status run_mean_squares(const ndp_op_call *c) {
    const ndp_view *x = &c->in[0];
    return ndp_rows(c, x->rows, x->cols, 1, mean_squares_of{*x, c->out[0], (float)c->attr->scale});
}
NDP_CUDA_KERNEL(mean_squares)

struct mean_squares_dx_each {
    ndp_view dm, x, acc, dx;
    float scale;
    __device__ void operator()(int64_t t, int64_t c) const {
        ndp_raw v = ndp_load8(x, t, c), before = acc.data ? ndp_load8(acc, t, c) : ndp_raw{};
        float by = 2 * scale * ndp_get(dm, t, 0);
        ndp_lanes d = ndp_widen(x.dtype, v), sum = ndp_widen(acc.dtype, before);
        for (int k = 0; k < NDP_LANES; k++)
            sum.x[k] += by * d.x[k];
        ndp_set8(dx, t, c, sum);
    }
};
static ndp_status run_mean_squares_dx(const ndp_op_call *c) {
    return ndp_each8(c, &c->out[0],
                     mean_squares_dx_each{c->in[0], c->in[1], c->in[2], c->out[0], (float)c->attr->scale});
}
NDP_CUDA_KERNEL(mean_squares_dx)

struct norm_by_each {
    ndp_view x, w, m, y, rstd;
    float eps, offset;
    __device__ void operator()(int64_t t, int64_t c) const {
        ndp_raw raw = ndp_load8(x, t, c);
        ndp_lanes by = ndp_weight8(w, c, offset);
        float r = 1.0f / sqrtf(ndp_get(m, t, 0) + eps);
        ndp_lanes v = ndp_widen(x.dtype, raw);
        for (int k = 0; k < NDP_LANES; k++)
            v.x[k] = v.x[k] * r * by.x[k];
        ndp_set8(y, t, c, v);
        if (c == 0)
            ndp_set(rstd, t, 0, r);
    }
};
static ndp_status run_norm_by(const ndp_op_call *c) {
    return ndp_each8(c, &c->out[0],
                     norm_by_each{c->in[0], c->in[1], c->in[2], c->out[0], c->out[1], (float)c->attr->eps,
                                  (float)c->attr->unit_offset});
}
NDP_CUDA_KERNEL(norm_by)

/* dx = dy w rstd, dm = -1/2 rstd^3 sum(dy w x); both may be absent. */
struct norm_by_dx_of {
    static constexpr int PASSES = 1, SUMS = 1;
    ndp_view dy, x, w, rstd, dx, dm;
    float offset;
    struct kept {
        ndp_raw dy, x;
    };
    __device__ kept read(const ndp_run &u, int c) const { return {ndp_load8(dy, u, c), ndp_load8(x, u, c)}; }
    __device__ float2 add(int, const ndp_run &, int c, const kept &v, float2) const {
        ndp_lanes by = ndp_weight8(w, c, offset);
        return make_float2(ndp_along8(by, ndp_widen(dy.dtype, v.dy), ndp_widen(x.dtype, v.x)), 0);
    }
    __device__ float2 finish(int, float2 sum, float2) const { return sum; }
    __device__ void store(const ndp_run &u, float2 sum) const {
        float r = ndp_get(rstd, u.t, 0);
        if (dm.data)
            ndp_set(dm, u.t, 0, -0.5f * r * r * r * sum.x);
    }
    __device__ void write(const ndp_run &u, int c, const kept &v, float2) const {
        if (!dx.data)
            return;
        ndp_lanes d = ndp_widen(dy.dtype, v.dy), by = ndp_weight8(w, c, offset);
        float r = ndp_get(rstd, u.t, 0);
        for (int k = 0; k < NDP_LANES; k++)
            d.x[k] *= by.x[k] * r;
        ndp_set8(dx, u.t, c, d);
    }
};
static ndp_status run_norm_by_dx(const ndp_op_call *c) {
    const ndp_view *dy = &c->in[0];
    norm_by_dx_of f = {*dy, c->in[1], c->in[2], c->in[3], c->out[0], c->out[1], (float)c->attr->unit_offset};
    return ndp_rows(c, dy->rows, dy->cols, 1, f);
}
NDP_CUDA_KERNEL(norm_by_dx)
