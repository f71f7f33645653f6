/* causal_conv, conv_silu and their gradients. */
#include "ops/cuda/cuda_columns.cuh"
#include "ops/cuda/cuda_kernels.hpp"

extern "C" {
#define inline __host__ __device__ inline /* kernels also call the functions of this header */
#include "ops/row_pieces.h"
#undef inline
}

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
    ndp_view x, w, start, ends;
    int64_t first, piece; /* the row of w for the first column of x; rows of a piece */
    int ranks, parts, place;
    __device__ ndp_op_attr attr() const {
        ndp_op_attr a = {};
        a.ranks = ranks, a.parts = parts, a.place = place;
        return a;
    }
    /* Row t sees the row j rows before it. */
    __device__ bool sees(int64_t t, int64_t j) const { return t - j >= ndp_int(start, t) && (t - j >= 0 || ends.data); }
    /* That row, of x or of the rows before the piece. */
    __device__ ndp_view row_back(int64_t t, int64_t j, int64_t *row) const {
        int64_t b = ends.data ? ndp_div(t, piece) : 0, before = j - (t - b * piece);
        *row = t - j;
        if (before <= 0)
            return x;
        ndp_op_attr a = attr();
        *row = ndp_row_before_piece(&a, ends.rows, b, before);
        return ends;
    }
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
        for (int64_t j = 0; j < w.cols && sees(t, j); j++) {
            int64_t row;
            ndp_view from = row_back(t, j, &row);
            add_product(&sum, tap(j, c), ndp_get8(from, row, c));
        }
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

/* x is operand `i`, the rows at the ends of pieces operand `ends`. */
static silu_conv conv_of(const ndp_op_call *c, int i, int ends) {
    const ndp_op_attr *a = c->attr;
    const ndp_view *x = &c->in[i];
    return {*x, x[1], x[2], c->in[ends], a->first, x->rows / ndp_row_pieces_here(a), a->ranks, a->parts, a->place};
}

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
    return ndp_each8(c, &c->out[0], conv_silu_each{conv_of(c, 0, 3), c->out[0]});
}
NDP_CUDA_KERNEL(conv_silu)

struct conv_silu_dx_each {
    silu_conv conv;
    ndp_view dy, acc, dx;
    __device__ void operator()(int64_t s, int64_t c) const {
        ndp_lanes sum = acc.data ? ndp_get8(acc, s, c) : ndp_lanes{};
        int64_t end = (ndp_div(s, conv.piece) + 1) * conv.piece;
        for (int64_t j = 0; j < conv.w.cols && s + j < end; j++)
            if (conv.sees(s + j, j))
                add_product(&sum, conv.tap(j, c), conv.gradient(dy, s + j, c));
        ndp_set8(dx, s, c, sum);
    }
};
static ndp_status run_conv_silu_dx(const ndp_op_call *c) {
    return ndp_each8(c, &c->out[0], conv_silu_dx_each{conv_of(c, 1, 5), c->in[0], c->in[4], c->out[0]});
}
NDP_CUDA_KERNEL(conv_silu_dx)

/* Of row j of the taps, the lanes: they weigh column j - first, if that is here. */
struct conv_silu_dw_of {
    silu_conv conv;
    ndp_view dy;
    __device__ ndp_lanes operator()(int64_t t, int64_t j, int64_t) const {
        ndp_lanes tap = ndp_get8(conv.w, j, 0), x = {};
        int64_t column = j - conv.first, row;
        float u = 0;
        if (column < 0 || column >= conv.x.cols)
            return x;
        for (int k = 0; k < NDP_LANES; k++) {
            int64_t back = conv.w.cols - 1 - k;
            if (back >= 0 && conv.sees(t, back)) {
                ndp_view from = conv.row_back(t, back, &row);
                x.x[k] = ndp_get(from, row, column);
            }
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
    return ndp_columns(c, c->in[0].rows, conv_silu_dw_of{conv_of(c, 1, 4), c->in[0]});
}
NDP_CUDA_KERNEL_WITH_SCRATCH(conv_silu_dw)

/* ---- between pieces ---- */

struct conv_silu_dends_each {
    silu_conv conv;
    ndp_view dy, dends;
    __device__ void operator()(int64_t end, int64_t c) const {
        ndp_op_attr a = conv.attr();
        ndp_lanes sum = {};
        int64_t each = dends.rows / ndp_row_pieces(&a);
        for (int64_t b = 0; b < conv.parts; b++)
            for (int64_t back = 1; back < conv.w.cols && back <= ndp_row_piece_number(&a, b) * each; back++)
                for (int64_t i = 0;
                     ndp_row_before_piece(&a, dends.rows, b, back) == end && i < conv.piece && i + back < conv.w.cols;
                     i++)
                    if (conv.sees(b * conv.piece + i, i + back))
                        add_product(&sum, conv.tap(i + back, c), conv.gradient(dy, b * conv.piece + i, c));
        ndp_set8(dends, end, c, sum);
    }
};
static ndp_status run_conv_silu_dends(const ndp_op_call *c) {
    return ndp_each8(c, &c->out[0], conv_silu_dends_each{conv_of(c, 1, 4), c->in[0], c->out[0]});
}
NDP_CUDA_KERNEL(conv_silu_dends)

struct piece_ends_each {
    ndp_view x, y;
    int64_t piece, ends;
    __device__ void operator()(int64_t r, int64_t c) const {
        int64_t b = ndp_div(r, ends);
        ndp_set8(y, r, c, ndp_get8(x, (b + 1) * piece - ends + r - b * ends, c));
    }
};
static ndp_status run_piece_ends(const ndp_op_call *c) {
    return ndp_each8(c, &c->out[0],
                     piece_ends_each{c->in[0], c->out[0], c->in[0].rows / c->attr->parts, c->attr->ends});
}
NDP_CUDA_KERNEL(piece_ends)

struct piece_ends_dx_each {
    ndp_view dy, acc, dx;
    int64_t piece, ends;
    __device__ void operator()(int64_t t, int64_t c) const {
        int64_t b = ndp_div(t, piece), at = t - (b + 1) * piece + ends;
        ndp_lanes sum = acc.data ? ndp_get8(acc, t, c) : ndp_lanes{},
                  d = at < 0 ? ndp_lanes{} : ndp_get8(dy, b * ends + at, c);
        for (int k = 0; k < NDP_LANES; k++)
            sum.x[k] += d.x[k];
        ndp_set8(dx, t, c, sum);
    }
};
static ndp_status run_piece_ends_dx(const ndp_op_call *c) {
    return ndp_each8(c, &c->out[0],
                     piece_ends_dx_each{c->in[0], c->in[2], c->out[0], c->out[0].rows / c->attr->parts, c->attr->ends});
}
NDP_CUDA_KERNEL(piece_ends_dx)
