/* add, add_bias, add_columns. */
#include "ops/cpu/rows/row_parts.h"

void NDP_RANGE_KERNEL(add)(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *a = &c->in[0], *s = &c->out[0];
    for (int64_t t = first; t < last; t++)
        NDP_BY_TYPES(a->dtype, s->dtype, add_row, a->cols, ndp_at(a, t, 0), ndp_at(&c->in[1], t, 0), ndp_at(s, t, 0));
}

void NDP_RANGE_KERNEL(add_bias)(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *y = &c->in[0], *b = &c->in[1];
    for (int64_t t = first; t < last; t++)
        NDP_BY_TYPES(b->dtype, y->dtype, add_to_row, y->cols, b->data, ndp_at(y, t, 0));
}

void NDP_RANGE_KERNEL(add_columns)(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *y = &c->in[0], *z = &c->in[1];
    for (int64_t t = first; t < last; t++)
        NDP_BY_TYPES(z->dtype, y->dtype, add_to_row, z->cols, ndp_at(z, t, 0), ndp_at(y, t, c->attr->first));
}
