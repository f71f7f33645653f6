/* attention_merge. */
#include "ops/ref/ref_kernels.h"

#include <math.h>

static ndp_status run_attention_merge(const ndp_op_call *c) {
    const ndp_view *o = &c->in[0], *o2 = &c->in[2], *lse = &c->out[1];
    int64_t d = o->cols / lse->cols;
    for (int64_t t = 0; t < o->rows; t++)
        for (int64_t h = 0; h < lse->cols; h++) {
            double a = ndp_view_get(&c->in[1], t, h), b = ndp_view_get(&c->in[3], t, h), high = a > b ? a : b;
            bool none = a == -INFINITY && b == -INFINITY;
            double both = none ? -INFINITY : high + log(exp(a - high) + exp(b - high));
            double wa = none ? 0 : exp(a - both), wb = none ? 0 : exp(b - both);
            for (int64_t i = h * d; i < (h + 1) * d; i++)
                ndp_view_set(o, t, i, wa * ndp_view_get(o, t, i) + wb * ndp_view_get(o2, t, i));
            ndp_view_set(lse, t, h, both);
        }
    return NDP_OK;
}

const ndp_kernel ndp_ref_attention_merge = {.run = run_attention_merge};
