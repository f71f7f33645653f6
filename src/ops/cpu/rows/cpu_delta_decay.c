/* delta_decay and its gradients, by blocks of columns: a column is a head. */
#include "ops/cpu/rows/column_sums.h"
#include "ops/delta_rule.h"

#include <math.h>

/* n heads of a call from operand a on: -exp(alog), and dt. */
typedef struct decay_heads {
    int64_t at, n;
    float rate[NDP_COLUMN_BLOCK], shift[NDP_COLUMN_BLOCK];
} decay_heads;

static void heads_load(decay_heads *h, const ndp_view *a, int64_t at) {
    h->at = at, h->n = a->cols - at < NDP_COLUMN_BLOCK ? a->cols - at : NDP_COLUMN_BLOCK;
    for (int64_t i = 0; i < h->n; i++) {
        h->rate[i] = -expf((float)ndp_view_get(a + 1, 0, at + i));
        h->shift[i] = (float)ndp_view_get(a + 2, 0, at + i);
    }
}

/* Of one row and a head there is too little to make vectors for. */
static float softplus(float x) { return x > NDP_SOFTPLUS_LINEAR ? x : log1pf(expf(x)); }
static float softplus_slope(float x) { return x > NDP_SOFTPLUS_LINEAR ? 1.0f : ndp_vsigmoidf(x); }

/* a + dt of head i of the block. */
static float shifted(const decay_heads *h, const ndp_view *a, int64_t t, int64_t i) {
    return ndp_ld(ndp_at(a, t, h->at), a->dtype, i) + h->shift[i];
}
static float arriving(const decay_heads *h, const ndp_op_call *c, int64_t t, int64_t i) {
    return ((const float *)ndp_at(&c->in[0], t, h->at))[i];
}

void NDP_RANGE_KERNEL(delta_decay)(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *a = &c->in[0];
    decay_heads h;
    for (int64_t at = 0; at < a->cols; at += NDP_COLUMN_BLOCK) {
        heads_load(&h, a, at);
        for (int64_t t = first; t < last; t++)
            for (int64_t i = 0; i < h.n; i++)
                ((float *)ndp_at(&c->out[0], t, at))[i] = h.rate[i] * softplus(shifted(&h, a, t, i));
    }
}

void NDP_RANGE_KERNEL(delta_decay_da)(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *a = &c->in[1], *da = &c->out[0];
    decay_heads h;
    for (int64_t at = 0; at < a->cols; at += NDP_COLUMN_BLOCK) {
        heads_load(&h, a, at);
        for (int64_t t = first; t < last; t++)
            for (int64_t i = 0; i < h.n; i++)
                ndp_st(ndp_at(da, t, at), da->dtype, i,
                       arriving(&h, c, t, i) * h.rate[i] * softplus_slope(shifted(&h, a, t, i)));
    }
}

/* The sum over rows of dg f(a + dt), times the rate. */
static void rate_sums(const ndp_op_call *c, int64_t first, int64_t last, float (*f)(float)) {
    const ndp_view *a = &c->in[1];
    decay_heads h;
    for (int64_t block = first, start, n; block < last; block++) {
        float *g = gradient_block(c, block, &start, &n), total[NDP_COLUMN_BLOCK] = {0};
        heads_load(&h, a, start);
        for (int64_t t0 = 0, some = rows_at_once(c); t0 < a->rows; t0 += some) {
            float part[NDP_COLUMN_BLOCK] = {0};
            for (int64_t t = t0; t < t0 + some && t < a->rows; t++)
                for (int64_t i = 0; i < n; i++)
                    part[i] += arriving(&h, c, t, i) * f(shifted(&h, a, t, i));
            add_into(NDP_F32, n, part, total);
        }
        for (int64_t i = 0; i < n; i++)
            g[i] += h.rate[i] * total[i];
    }
}

void NDP_RANGE_KERNEL(delta_decay_dlog)(const ndp_op_call *c, int64_t first, int64_t last) {
    rate_sums(c, first, last, softplus);
}

void NDP_RANGE_KERNEL(delta_decay_ddt)(const ndp_op_call *c, int64_t first, int64_t last) {
    rate_sums(c, first, last, softplus_slope);
}
