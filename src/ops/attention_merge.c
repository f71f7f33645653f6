/* Two attentions of the same queries over disjoint keys become one: what each would be scaled by in a softmax over both
 * follows from their lse. -inf: saw nothing. */
#include "ops/cpu/rows.h"
#include "ops/shape.h"

#include <math.h>

static ndp_status shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    (void)attr;
    NDP_SHAPE_SAME("attention_merge: o", in[0], in[2]);
    NDP_SHAPE_SAME("attention_merge: lse", in[1], in[3]);
    NDP_SHAPE_CHECK(in[0].dtype == ndp_wide(in[0].dtype) && in[1].dtype == in[0].dtype && in[1].rows == in[0].rows &&
                        in[1].cols > 0 && in[0].cols % in[1].cols == 0,
                    "attention_merge: o " NDP_SHAPE ", lse " NDP_SHAPE, NDP_SHAPE_ARGS(in[0]), NDP_SHAPE_ARGS(in[1]));
    ndp_shape_set(&out[0], in[0].rows, in[0].cols, in[0].dtype);
    ndp_shape_set(&out[1], in[1].rows, in[1].cols, in[1].dtype);
    return NDP_OK;
}

static void cost(const ndp_op_call *c, double *flops, double *bytes) {
    ndp_cost_stream(c, 4, 2, &c->in[0], 3, flops, bytes);
}

static void kernel_ref(const ndp_op_call *c) {
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
}

static void kernel_cpu(const ndp_op_call *c) { ndp_rows_run(c, c->in[0].rows, ndp_rows_best()->attention_merge); }

const ndp_op ndp_op_attention_merge = {
    .name = "attention_merge",
    .n_in = 4,
    .n_out = 2,
    .alias = 0,
    .shape = shape,
    .cost = cost,
    .kernel = {kernel_cpu, kernel_ref},
};
