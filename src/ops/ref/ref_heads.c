/* heads_split, heads_merge. */
#include "ops/heads.h"
#include "ops/ref/ref_kernels.h"

static ndp_status run_heads_split(const ndp_op_call *c) {
    const ndp_view *x = &c->in[0], *y = &c->out[0];
    ndp_heads h = ndp_heads_of(c->attr);
    for (int64_t p = 0; p < c->attr->parts; p++)
        for (int64_t t = 0; t < x->rows; t++)
            for (int64_t j = 0; j < h.width; j++)
                ndp_view_set(y, p * x->rows + t, j, ndp_view_get(x, t, ndp_heads_run(&h, p) * h.width + j));
    return NDP_OK;
}

const ndp_kernel ndp_ref_heads_split = {.run = run_heads_split};

static ndp_status run_heads_merge(const ndp_op_call *c) {
    const ndp_view *y = &c->in[0], *x = &c->out[0];
    ndp_heads h = ndp_heads_of(c->attr);
    for (int64_t t = 0; t < x->rows; t++)
        for (int64_t j = 0; j < x->cols; j++) {
            double sum = 0;
            int64_t p, end;
            for (ndp_heads_parts(&h, j / h.width, &p, &end); p < end; p++)
                sum += ndp_view_get(y, p * x->rows + t, j % h.width);
            ndp_view_set(x, t, j, sum);
        }
    return NDP_OK;
}

const ndp_kernel ndp_ref_heads_merge = {.run = run_heads_merge};
