/* dora_squares, dora and the gradient of its m. */
#include "ops/cuda/cuda_columns.cuh"
#include "ops/cuda/cuda_kernels.hpp"
#include "ops/cuda/cuda_rows.cuh"

struct dora_squares_of {
    static constexpr int PASSES = 1, SUMS = 2;
    ndp_view w, a, b, sq;
    float scale;
    int at; /* where the sum of squares is split in two */
    typedef ndp_raw kept;
    __device__ ndp_raw read(const ndp_run &u, int c) const { return ndp_load8(w, u, c); }
    __device__ float2 add(int, const ndp_run &u, int c, const ndp_raw &raw, float2) const {
        ndp_lanes change = {}, v = ndp_widen(w.dtype, raw);
        for (int64_t j = 0; j < a.rows; j++) {
            ndp_lanes row = ndp_get8(a, j, c);
            float by = ndp_get(b, u.t, j);
            for (int k = 0; k < NDP_LANES; k++)
                change.x[k] += by * row.x[k];
        }
        for (int k = 0; k < NDP_LANES; k++)
            v.x[k] += scale * change.x[k];
        return ndp_squares8(v, c, at);
    }
    __device__ float2 finish(int, float2 sum, float2) const { return make_float2(sum.x + sum.y, 0); }
    __device__ void store(const ndp_run &u, float2 stats) const { ndp_set(sq, u.t, 0, stats.x); }
    __device__ void write(const ndp_run &, int, const ndp_raw &, float2) const {}
};
static ndp_status run_dora_squares(const ndp_op_call *c) {
    const ndp_view *w = &c->in[0];
    dora_squares_of f = {
        *w, c->in[1], c->in[2], c->out[0], (float)c->attr->scale, (int)ndp_split_at(w->cols, ndp_split_place(c->exec))};
    return ndp_rows(c, w->rows, w->cols, 1, f);
}
NDP_CUDA_KERNEL(dora_squares)

struct dora_each {
    ndp_view u, m, sq, y;
    int64_t first;
    __device__ void operator()(int64_t t, int64_t c) const {
        ndp_lanes v = ndp_get8(u, t, c);
        for (int k = 0; k < NDP_LANES; k++) {
            int64_t i = c + k - first;
            if (i >= 0 && i < sq.rows)
                v.x[k] *= ndp_get(m, 0, i) / sqrtf(ndp_get(sq, i, 0));
        }
        ndp_set8(y, t, c, v);
    }
};
static ndp_status run_dora(const ndp_op_call *c) {
    return ndp_each8(c, &c->out[0], dora_each{c->in[0], c->in[1], c->in[2], c->out[0], c->attr->first});
}
NDP_CUDA_KERNEL(dora)

struct dora_dm_of {
    ndp_view dy, u, sq;
    int64_t first;
    __device__ ndp_lanes operator()(int64_t t, int64_t, int64_t c) const {
        ndp_raw p = ndp_load8(ndp_cut(dy, first, sq.rows), t, c), q = ndp_load8(ndp_cut(u, first, sq.rows), t, c);
        ndp_lanes d = ndp_widen(dy.dtype, p), v = ndp_widen(u.dtype, q);
        for (int k = 0; k < NDP_LANES; k++)
            d.x[k] *= c + k < sq.rows ? v.x[k] / sqrtf(ndp_get(sq, c + k, 0)) : 0.0f;
        return d;
    }
};
static ndp_status run_dora_dm(const ndp_op_call *c) {
    return ndp_columns(c, c->in[0].rows, dora_dm_of{c->in[0], c->in[1], c->in[2], c->attr->first});
}
NDP_CUDA_KERNEL_WITH_SCRATCH(dora_dm)
