/* attention_dsink. */
#include "ops/cpu/rows/column_sums.h"
#include "ops/cpu/rows/row_parts.h"

#include <math.h>

/* Of the sink of head h, which is `sink`: the rows are added some at a time. */
static float dsink_of(const ndp_op_call *c, int64_t h, float sink) {
    const ndp_view *d_o = &c->in[0], *o = &c->in[1];
    int64_t d = ndp_v_dim(c->attr);
    float total = 0;
    for (int64_t t0 = 0, some = rows_at_once(c); t0 < d_o->rows; t0 += some) {
        float part = 0;
        for (int64_t t = t0; t < t0 + some && t < d_o->rows; t++) {
            float delta;
            NDP_BY_TYPES(d_o->dtype, o->dtype, dot_row, d, ndp_at(d_o, t, h * d), ndp_at(o, t, h * d), &delta);
            part -= expf(sink - *(const float *)ndp_at(&c->in[2], t, h)) * delta;
        }
        total += part;
    }
    return total;
}

void NDP_RANGE_KERNEL(attention_dsink)(const ndp_op_call *c, int64_t first, int64_t last) {
    for (int64_t b = first, start, n; b < last; b++) {
        float *g = gradient_block(c, b, &start, &n);
        for (int64_t i = 0; i < n; i++) {
            int64_t h = start + i - c->attr->first;
            if (h >= 0 && h < c->attr->heads)
                g[i] += dsink_of(c, h, (float)ndp_view_get(&c->in[3], 0, start + i));
        }
    }
}
