/* rope. */
#include "ops/cuda/cuda_kernel.cuh"
#include "ops/cuda/cuda_kernels.hpp"

/* Heads that a thread turns by the same angles. */
enum { ROPE_HEADS = 4 };

/* Columns c .. c + 7 of the halves of the heads of group r: (a, b) -> (a cos - b sin, b cos + a sin). */
struct rope_each {
    ndp_view x, pos, table;
    int64_t groups, half;
    int heads, head_dim, skipped;
    bool pairs;
    float sign;
    /* The same where a and b are neighbours: each pair is read and written by one thread. */
    __device__ void turn_pairs(int64_t t, int64_t at, int64_t c, const ndp_lanes &cosine, const ndp_lanes &sine) const {
        for (int k = 0; k < NDP_LANES && c + k < half; k++) {
            int64_t i = at + 2 * (c + k);
            float a = ndp_get(x, t, i), b = ndp_get(x, t, i + 1), s = sign * sine.x[k];
            ndp_set(x, t, i, a * cosine.x[k] - b * s);
            ndp_set(x, t, i + 1, b * cosine.x[k] + a * s);
        }
    }
    __device__ void turn(int64_t t, int head, int64_t c, const ndp_lanes &cosine, const ndp_lanes &sine) const {
        int64_t at = (int64_t)head * head_dim + skipped;
        if (pairs) {
            turn_pairs(t, at, c, cosine, sine);
            return;
        }
        ndp_view first = ndp_cut(x, at, half), second = ndp_cut(x, at + half, half);
        ndp_raw p = ndp_load8(first, t, c), q = ndp_load8(second, t, c);
        ndp_lanes a = ndp_widen(x.dtype, p), b = ndp_widen(x.dtype, q), u, v;
        for (int k = 0; k < NDP_LANES; k++) {
            float s = sign * sine.x[k];
            u.x[k] = a.x[k] * cosine.x[k] - b.x[k] * s;
            v.x[k] = b.x[k] * cosine.x[k] + a.x[k] * s;
        }
        ndp_set8(first, t, c, u);
        ndp_set8(second, t, c, v);
    }
    __device__ void operator()(int64_t r, int64_t c) const {
        int64_t t = ndp_div(r, groups);
        int head = (int)(r - t * groups) * ROPE_HEADS, p = ndp_int(pos, t);
        ndp_lanes cosine = ndp_get8(ndp_cut(table, 0, half), p, c), sine = ndp_get8(ndp_cut(table, half, half), p, c);
        for (int k = 0; k < ROPE_HEADS && head + k < heads; k++)
            turn(t, head + k, c, cosine, sine);
    }
};
static ndp_status run_rope(const ndp_op_call *c) {
    const ndp_view *x = &c->in[0], *table = &c->in[2];
    int heads = c->attr->heads + c->attr->kv_heads;
    int64_t groups = ndp_ceil_div(heads, ROPE_HEADS), half = table->cols / 2;
    return ndp_each8(c, x->rows * groups, half,
                     rope_each{*x, c->in[1], *table, groups, half, heads, c->attr->head_dim, c->attr->skipped,
                               c->attr->neighbours, c->attr->inverse ? -1.0f : 1.0f});
}
NDP_CUDA_KERNEL(rope)
