/* gate_rows, gate_rows_dg, gate_by, gate_by_bwd. */
#include "ops/cpu/rows/row_parts.h"

static float gate_of(const ndp_view *gate, int64_t t) { return *(const float *)ndp_at(gate, t, 0); }

void NDP_RANGE_KERNEL(gate_rows)(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *x = &c->in[0], *y = &c->out[0];
    for (int64_t t = first; t < last; t++)
        NDP_BY_TYPES(x->dtype, y->dtype, scale_into, x->cols, ndp_at(x, t, 0), ndp_vsigmoidf(gate_of(&c->in[1], t)),
                     ndp_at(y, t, 0));
}

/* 1 - s(x) is s(-x), without the difference of equals where a gate is open. */
void NDP_RANGE_KERNEL(gate_rows_dg)(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *dy = &c->in[0], *x = &c->in[1];
    for (int64_t t = first; t < last; t++) {
        float gate = gate_of(&c->in[2], t), along;
        NDP_BY_TYPES(dy->dtype, x->dtype, dot_row, x->cols, ndp_at(dy, t, 0), ndp_at(x, t, 0), &along);
        *(float *)ndp_at(&c->out[0], t, 0) = ndp_vsigmoidf(gate) * ndp_vsigmoidf(-gate) * along;
    }
}

/* y = x sigmoid(gate), or x silu(gate): gate_by, and its dx of dy */
NDP_INLINE void by_row(ndp_dtype type, int64_t n, const void *x, const void *gate, bool sigmoid, void *y) {
    SIMD for (int64_t i = 0; i < n; i++) {
        float g = ndp_ld(gate, type, i);
        ndp_st(y, type, i, ndp_ld(x, type, i) * ndp_vsigmoidf(g) * (sigmoid ? 1.0f : g));
    }
}

static void by_rows(const ndp_op_call *c, const ndp_view *x, const ndp_view *gate, int64_t first, int64_t last) {
    const ndp_view *y = &c->out[0];
    for (int64_t t = first; t < last; t++)
        NDP_BY_TYPE(x->dtype, by_row, x->cols, ndp_at(x, t, 0), ndp_at(gate, t, 0), c->attr->sigmoid, ndp_at(y, t, 0));
}

void NDP_RANGE_KERNEL(gate_by)(const ndp_op_call *c, int64_t first, int64_t last) {
    by_rows(c, &c->in[0], &c->in[1], first, last);
}

NDP_INLINE void by_dgate_row(ndp_dtype type, int64_t n, const void *dy, const void *x, const void *gate, bool sigmoid,
                             void *dgate) {
    SIMD for (int64_t i = 0; i < n; i++) {
        float g = ndp_ld(gate, type, i), s = ndp_vsigmoidf(g), left = ndp_vsigmoidf(-g);
        float slope = sigmoid ? s * left : s * (1.0f + g * left);
        ndp_st(dgate, type, i, ndp_ld(dy, type, i) * ndp_ld(x, type, i) * slope);
    }
}

void NDP_RANGE_KERNEL(gate_by_bwd)(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *dy = &c->in[0], *x = &c->in[1], *gate = &c->in[2], *dgate = &c->out[1];
    if (c->out[0].data)
        by_rows(c, dy, gate, first, last);
    for (int64_t t = first; t < last && dgate->data; t++)
        NDP_BY_TYPE(x->dtype, by_dgate_row, x->cols, ndp_at(dy, t, 0), ndp_at(x, t, 0), ndp_at(gate, t, 0),
                    c->attr->sigmoid, ndp_at(dgate, t, 0));
}
