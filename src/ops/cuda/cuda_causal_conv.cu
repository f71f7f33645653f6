/* causal_conv, conv_silu and their gradients. */
#include "ops/cuda/cuda_columns.cuh"
#include "ops/cuda/cuda_kernels.hpp"

/* Neighbouring rows that a thread makes: they share the taps and most of the rows that they read. */
enum { CONV_ROWS = 4 };

static __device__ __forceinline__ void add_product(ndp_lanes *sum, const ndp_lanes &w, const ndp_lanes &x) {
    for (int k = 0; k < NDP_LANES; k++)
        sum->x[k] += w.x[k] * x.x[k];
}

/* y[t] = acc[t] + sum of w[j] x[t - j] where row t sees row t - j. SIGN -1, the gradient: of w[j] x[t + j] where row
 * t + j sees row t. */
template <int SIGN> struct conv_each {
    ndp_view x, w, start, acc, y;
    __device__ void operator()(int64_t group, int64_t c) const {
        int64_t t = group * CONV_ROWS;
        ndp_lanes sum[CONV_ROWS];
#pragma unroll
        for (int k = 0; k < CONV_ROWS; k++)
            sum[k] = acc.data && t + k < y.rows ? ndp_get8(acc, t + k, c) : ndp_lanes{};
        for (int64_t j = 0; j < w.rows; j++) {
            ndp_lanes tap = ndp_get8(w, j, c);
#pragma unroll
            for (int k = 0; k < CONV_ROWS; k++) {
                int64_t to = t + k, from = to - SIGN * j;
                int64_t late = SIGN > 0 ? to : from, early = SIGN > 0 ? from : to;
                if (to < y.rows && early >= 0 && late < y.rows && early >= ndp_int(start, late))
                    add_product(&sum[k], tap, ndp_get8(x, from, c));
            }
        }
#pragma unroll
        for (int k = 0; k < CONV_ROWS; k++)
            if (t + k < y.rows)
                ndp_set8(y, t + k, c, sum[k]);
    }
};
template <int SIGN> static ndp_status run_conv(const ndp_op_call *c, const ndp_view &acc) {
    const ndp_view *y = &c->out[0];
    return ndp_each8(c, ndp_ceil_div(y->rows, CONV_ROWS), y->cols,
                     conv_each<SIGN>{c->in[0], c->in[1], c->in[2], acc, *y});
}
static ndp_status run_causal_conv(const ndp_op_call *c) { return run_conv<1>(c, ndp_view{}); }
NDP_CUDA_KERNEL(causal_conv)
static ndp_status run_causal_conv_dx(const ndp_op_call *c) { return run_conv<-1>(c, c->in[3]); }
NDP_CUDA_KERNEL(causal_conv_dx)

/* Of tap j. */
struct conv_dw_of {
    ndp_view dy, x, start;
    __device__ ndp_lanes operator()(int64_t t, int64_t j, int64_t c) const {
        if (t < j || t - j < ndp_int(start, t))
            return ndp_lanes{};
        ndp_raw p = ndp_load8(dy, t, c), q = ndp_load8(x, t - j, c);
        ndp_lanes d = ndp_widen(dy.dtype, p), v = ndp_widen(x.dtype, q);
        for (int k = 0; k < NDP_LANES; k++)
            d.x[k] *= v.x[k];
        return d;
    }
};
static ndp_status run_causal_conv_dw(const ndp_op_call *c) {
    return ndp_columns(c, c->in[0].rows, conv_dw_of{c->in[0], c->in[1], c->in[2]});
}
NDP_CUDA_KERNEL_WITH_SCRATCH(causal_conv_dw)

/* ---- conv_silu: w has a row for each column, whose last number weighs the row itself ---- */

/* By the short division: the long one is a call, and what lives across it does not stay in registers. */
static __device__ __forceinline__ float silu_slope(float x) {
    float s = __fdividef(1.0f, 1.0f + expf(-x));
    return s * (1.0f + x * (1.0f - s));
}

struct silu_conv {
    ndp_view x, w, start;
    int64_t first; /* the row of w for the first column of x */
    /* What weighs the row j rows back, for columns c .. c + 7. */
    __device__ ndp_lanes tap(int64_t j, int64_t c) const {
        ndp_lanes out = {};
        for (int k = 0; k < NDP_LANES; k++)
            if (c + k < x.cols)
                out.x[k] = ndp_get(w, first + c + k, w.cols - 1 - j);
        return out;
    }
    /* What silu is of. */
    __device__ ndp_lanes before(int64_t t, int64_t c) const {
        ndp_lanes sum = {};
        for (int64_t j = 0; j < w.cols && t - j >= 0 && t - j >= ndp_int(start, t); j++)
            add_product(&sum, tap(j, c), ndp_get8(x, t - j, c));
        return sum;
    }
    /* The gradient of that. */
    __device__ ndp_lanes gradient(const ndp_view &dy, int64_t t, int64_t c) const {
        ndp_lanes d = ndp_get8(dy, t, c), u = before(t, c);
        for (int k = 0; k < NDP_LANES; k++)
            d.x[k] *= silu_slope(u.x[k]);
        return d;
    }
};

struct conv_silu_each {
    silu_conv conv;
    ndp_view y;
    __device__ void operator()(int64_t t, int64_t c) const {
        ndp_lanes u = conv.before(t, c);
        for (int k = 0; k < NDP_LANES; k++)
            u.x[k] *= ndp_sigmoid(u.x[k]);
        ndp_set8(y, t, c, u);
    }
};
static ndp_status run_conv_silu(const ndp_op_call *c) {
    return ndp_each8(c, &c->out[0], conv_silu_each{{c->in[0], c->in[1], c->in[2], c->attr->first}, c->out[0]});
}
NDP_CUDA_KERNEL(conv_silu)

struct conv_silu_dx_each {
    silu_conv conv;
    ndp_view dy, acc, dx;
    __device__ void operator()(int64_t s, int64_t c) const {
        ndp_lanes sum = acc.data ? ndp_get8(acc, s, c) : ndp_lanes{};
        for (int64_t j = 0; j < conv.w.cols && s + j < dx.rows; j++)
            if (ndp_int(conv.start, s + j) <= s)
                add_product(&sum, conv.tap(j, c), conv.gradient(dy, s + j, c));
        ndp_set8(dx, s, c, sum);
    }
};
static ndp_status run_conv_silu_dx(const ndp_op_call *c) {
    return ndp_each8(c, &c->out[0], conv_silu_dx_each{{c->in[1], c->in[2], c->in[3], c->attr->first}, c->in[0], c->in[4], c->out[0]});
}
NDP_CUDA_KERNEL(conv_silu_dx)

/* Of row j of the taps, the lanes: they weigh column j - first, if that is here. */
struct conv_silu_dw_of {
    silu_conv conv;
    ndp_view dy;
    __device__ ndp_lanes operator()(int64_t t, int64_t j, int64_t) const {
        ndp_lanes tap = ndp_get8(conv.w, j, 0), x = {};
        int64_t first = ndp_int(conv.start, t) > 0 ? ndp_int(conv.start, t) : 0, from = t + 1 - conv.w.cols;
        int64_t column = j - conv.first;
        float u = 0;
        if (column < 0 || column >= conv.x.cols)
            return x;
        for (int k = 0; k < NDP_LANES; k++) {
            if (k < conv.w.cols && from + k >= first)
                x.x[k] = ndp_get(conv.x, from + k, column);
            u += tap.x[k] * x.x[k];
        }
        float du = ndp_get(dy, t, column) * silu_slope(u);
        for (int k = 0; k < NDP_LANES; k++)
            x.x[k] *= du;
        return x;
    }
};
static_assert((int)NDP_MAX_TAPS <= (int)NDP_LANES, "the taps of a column are lanes");
static ndp_status run_conv_silu_dw(const ndp_op_call *c) {
    return ndp_columns(c, c->in[0].rows, conv_silu_dw_of{{c->in[1], c->in[2], c->in[3], c->attr->first}, c->in[0]});
}
NDP_CUDA_KERNEL_WITH_SCRATCH(conv_silu_dw)
