/* take_rows, give_rows, weigh_rows, and gradients of weights. */
#include "ops/cuda/cuda_kernels.hpp"
#include "ops/cuda/cuda_move.cuh"
#include "ops/cuda/cuda_rows.cuh"

/* ---- take_rows ---- */

struct take_moves {
    ndp_view x, order, y;
    int k;
    int64_t bytes;
    __device__ void operator()(int64_t n, int64_t at) const {
        int from = ndp_int(order, n);
        ndp_move(ndp_row_of(y, n), from < 0 ? nullptr : ndp_row_of(x, from / k), at, bytes);
    }
};

/* With weights, or into another type. */
struct take_each {
    ndp_view x, order, weights, y;
    int k;
    __device__ void operator()(int64_t n, int64_t c) const {
        int from = ndp_int(order, n), t = from / k;
        ndp_lanes v = {};
        if (from >= 0)
            v = ndp_get8(x, t, c);
        float by = from >= 0 && weights.data ? ndp_get(weights, t, from - t * k) : 1.0f;
        for (int i = 0; i < NDP_LANES; i++)
            v.x[i] *= by;
        ndp_set8(y, n, c, v);
    }
};

static ndp_status run_take_rows(const ndp_op_call *c) {
    const ndp_view *x = &c->in[0], *order = &c->in[1], *weights = &c->in[3], *y = &c->out[0];
    int k = (int)c->in[2].cols;
    if (x->dtype == y->dtype && !weights->data)
        return ndp_moves(c, y->rows, ndp_row_bytes(y), take_moves{*x, *order, *y, k, ndp_row_bytes(y)});
    return ndp_each8(c, y, take_each{*x, *order, *weights, *y, k});
}
NDP_CUDA_KERNEL(take_rows)

/* ---- give_rows ---- */

struct give_each {
    ndp_view y, places, weights, acc, x;
    __device__ void operator()(int64_t t, int64_t c) const {
        const int *place = (const int *)places.data + t * places.ld;
        ndp_lanes sum = {};
        for (int j = 0; j < (int)places.cols; j++) {
            if (place[j] < 0)
                continue;
            ndp_lanes v = ndp_get8(y, place[j], c);
            float by = weights.data ? ndp_get(weights, t, j) : 1.0f;
            for (int i = 0; i < NDP_LANES; i++)
                sum.x[i] += by * v.x[i];
        }
        if (acc.data) {
            ndp_lanes v = ndp_get8(acc, t, c);
            for (int i = 0; i < NDP_LANES; i++)
                sum.x[i] += v.x[i];
        }
        ndp_set8(x, t, c, sum);
    }
};
static ndp_status run_give_rows(const ndp_op_call *c) {
    return ndp_each8(c, &c->out[0], give_each{c->in[0], c->in[2], c->in[3], c->in[4], c->out[0]});
}
NDP_CUDA_KERNEL(give_rows)

/* ---- weigh_rows ---- */

struct weigh_each {
    ndp_view x, order, weights;
    int k;
    __device__ void operator()(int64_t n, int64_t c) const {
        int from = ndp_int(order, n), t = from / k;
        ndp_lanes v = {};
        if (from >= 0) {
            float by = ndp_get(weights, t, from - t * k);
            v = ndp_get8(x, n, c);
            for (int i = 0; i < NDP_LANES; i++)
                v.x[i] *= by;
        }
        ndp_set8(x, n, c, v);
    }
};
static ndp_status run_weigh_rows(const ndp_op_call *c) {
    return ndp_each8(c, &c->out[0], weigh_each{c->out[0], c->in[1], c->in[3], (int)c->in[2].cols});
}
NDP_CUDA_KERNEL(weigh_rows)

/* ---- gradients of weights: a team for each choice. With weights, of weigh_rows: dx has a row for each choice too ----
 */

struct give_rows_dw_of {
    static constexpr int PASSES = 1, SUMS = 1;
    ndp_view dx, y, places, dw, weights;
    struct kept {
        ndp_raw dx, y;
    };
    __device__ int place(const ndp_run &u) const { return ((const int *)places.data)[u.t * places.ld + u.g]; }
    /* Zeros where the choice has no row. */
    __device__ kept read(const ndp_run &u, int c) const {
        int row = place(u);
        if (row < 0)
            return {};
        return {ndp_load8(dx, weights.data ? row : u.t, c), ndp_load8(y, row, c)};
    }
    __device__ float2 add(int, const ndp_run &u, int, const kept &v, float2) const {
        if (place(u) < 0) /* not even a NaN of dx times 0 */
            return make_float2(0, 0);
        return make_float2(ndp_dot8(ndp_widen(dx.dtype, v.dx), ndp_widen(y.dtype, v.y)), 0);
    }
    __device__ float2 finish(int, float2 sum, float2) const { return sum; }
    __device__ void store(const ndp_run &u, float2 sum) const {
        float weight = weights.data ? ndp_get(weights, u.t, u.g) : 1.0f;
        ndp_set(dw, u.t, u.g, weight == 0 ? 0 : sum.x / weight);
    }
    __device__ void write(const ndp_run &, int, const kept &, float2) const {}
};
static ndp_status run_give_rows_dw(const ndp_op_call *c) {
    const ndp_view *dx = &c->in[0], *places = &c->in[2];
    return ndp_rows(c, places->rows, dx->cols, (int)places->cols,
                    give_rows_dw_of{*dx, c->in[1], *places, c->out[0], c->in[3]});
}
NDP_CUDA_KERNEL(give_rows_dw)
static ndp_status run_weigh_rows_dw(const ndp_op_call *c) { return run_give_rows_dw(c); }
NDP_CUDA_KERNEL(weigh_rows_dw)
