/* gate_rows, gate_rows_dg. */
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
