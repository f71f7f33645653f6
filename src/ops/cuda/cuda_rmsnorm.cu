/* rmsnorm, add_rmsnorm and the gradients. */
#include "ops/cuda/cuda_columns.cuh"
#include "ops/cuda/cuda_kernels.hpp"
#include "ops/cuda/cuda_rows.cuh"

/* y = x rstd (w + offset). */
struct rmsnorm_of {
    static constexpr int PASSES = 1, SUMS = 2;
    ndp_view x, w, y, rstd;
    float eps, offset;
    int at; /* where the sum of squares is split in two */
    typedef ndp_raw kept;
    __device__ ndp_raw read(const ndp_run &u, int c) const { return ndp_load8(x, u, c); }
    __device__ float2 add(int, const ndp_run &, int c, const ndp_raw &v, float2) const {
        return ndp_squares8(ndp_widen(x.dtype, v), c, at);
    }
    __device__ float2 finish(int, float2 sum, float2) const {
        return make_float2(1.0f / sqrtf((sum.x + sum.y) / (float)w.cols + eps), 0);
    }
    __device__ void store(const ndp_run &u, float2 stats) const { ndp_set(rstd, u.t, u.g, stats.x); }
    __device__ void write(const ndp_run &u, int c, const ndp_raw &raw, float2 stats) const {
        ndp_lanes v = ndp_widen(x.dtype, raw), by = ndp_weight8(w, c, offset);
        for (int k = 0; k < NDP_LANES; k++)
            v.x[k] = v.x[k] * stats.x * by.x[k];
        ndp_set8(y, u, c, v);
    }
};

static rmsnorm_of norm_of(const ndp_op_call *c, const ndp_view &x, const ndp_view &w, const ndp_view &y,
                          const ndp_view &rstd) {
    return {x,
            w,
            y,
            rstd,
            (float)c->attr->eps,
            (float)c->attr->unit_offset,
            (int)ndp_split_at(w.cols, ndp_split_place(c->exec))};
}

static ndp_status run_rmsnorm(const ndp_op_call *c) {
    const ndp_view *x = &c->in[0], *w = &c->in[1];
    return ndp_rows(c, x->rows, w->cols, (int)(x->cols / w->cols), norm_of(c, *x, *w, c->out[0], c->out[1]));
}
NDP_CUDA_KERNEL(rmsnorm)

/* The norm of s = a + h, as rounded. */
struct add_rmsnorm_of : rmsnorm_of {
    ndp_view a, h;
    __device__ ndp_raw read(const ndp_run &u, int c) const {
        ndp_raw p = ndp_load8(a, u.t, c), q = ndp_load8(h, u.t, c);
        ndp_lanes v = ndp_widen(a.dtype, p), w = ndp_widen(h.dtype, q);
        for (int k = 0; k < NDP_LANES; k++)
            v.x[k] += w.x[k];
        ndp_raw s = ndp_narrow(x.dtype, v);
        ndp_store8(x, u.t, c, s);
        return s;
    }
};
static ndp_status run_add_rmsnorm(const ndp_op_call *c) {
    const ndp_view *s = &c->out[0];
    add_rmsnorm_of f = {norm_of(c, *s, c->in[2], c->out[1], c->out[2]), c->in[0], c->in[1]};
    return ndp_rows(c, s->rows, s->cols, 1, f);
}
NDP_CUDA_KERNEL(add_rmsnorm)

/* dx = acc + rstd dy w - x rstd^3 sum(dy w x) / n */
struct rmsnorm_dx_of {
    static constexpr int PASSES = 1, SUMS = 1;
    ndp_view dy, x, w, rstd, acc, dx;
    float offset;
    struct kept {
        ndp_raw dy, x;
    };
    __device__ kept read(const ndp_run &u, int c) const { return {ndp_load8(dy, u, c), ndp_load8(x, u, c)}; }
    __device__ float2 add(int, const ndp_run &, int c, const kept &v, float2) const {
        ndp_lanes by = ndp_weight8(w, c, offset);
        return make_float2(ndp_along8(by, ndp_widen(dy.dtype, v.dy), ndp_widen(x.dtype, v.x)), 0);
    }
    __device__ float2 finish(int, float2 sum, float2) const { return make_float2(sum.x / (float)w.cols, 0); }
    __device__ void store(const ndp_run &, float2) const {}
    __device__ void write(const ndp_run &u, int c, const kept &v, float2 stats) const {
        ndp_raw before = acc.data ? ndp_load8(acc, u, c) : ndp_raw{};
        float r = ndp_get(rstd, u.t, u.g), along = stats.x * r * r * r;
        ndp_lanes by = ndp_weight8(w, c, offset), d = ndp_widen(dy.dtype, v.dy), z = ndp_widen(x.dtype, v.x),
                  sum = ndp_widen(acc.dtype, before);
        for (int k = 0; k < NDP_LANES; k++)
            sum.x[k] += d.x[k] * by.x[k] * r - z.x[k] * along;
        ndp_set8(dx, u, c, sum);
    }
};
static ndp_status run_rmsnorm_dx(const ndp_op_call *c) {
    const ndp_view *dy = &c->in[0], *w = &c->in[2], *rstd = &c->in[3];
    rmsnorm_dx_of f = {*dy, c->in[1], *w, *rstd, c->in[4], c->out[0], (float)c->attr->unit_offset};
    return ndp_rows(c, dy->rows, w->cols, (int)rstd->cols, f);
}
NDP_CUDA_KERNEL(rmsnorm_dx)

/* Runs of a row count as rows. */
struct rmsnorm_dw_of {
    ndp_view dy, x, rstd;
    int64_t n;
    __device__ ndp_lanes operator()(int64_t i, int64_t, int64_t c) const {
        int64_t t = ndp_div(i, rstd.cols), g = i - t * rstd.cols;
        ndp_raw p = ndp_load8(ndp_cut(dy, g * n, n), t, c), q = ndp_load8(ndp_cut(x, g * n, n), t, c);
        float r = ndp_get(rstd, t, g);
        ndp_lanes d = ndp_widen(dy.dtype, p), v = ndp_widen(x.dtype, q);
        for (int k = 0; k < NDP_LANES; k++)
            d.x[k] *= v.x[k] * r;
        return d;
    }
};
static ndp_status run_rmsnorm_dw(const ndp_op_call *c) {
    const ndp_view *rstd = &c->in[2];
    return ndp_columns(c, rstd->rows * rstd->cols, rmsnorm_dw_of{c->in[0], c->in[1], *rstd, c->out[0].cols});
}
NDP_CUDA_KERNEL_WITH_SCRATCH(rmsnorm_dw)
