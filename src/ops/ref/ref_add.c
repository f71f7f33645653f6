/* add, add_bias. */
#include "ops/ref/ref_kernels.h"

static ndp_status run_add(const ndp_op_call *c) {
    for (int64_t t = 0; t < c->out[0].rows; t++)
        for (int64_t j = 0; j < c->out[0].cols; j++)
            ndp_view_set(&c->out[0], t, j, ndp_view_get(&c->in[0], t, j) + ndp_view_get(&c->in[1], t, j));
    return NDP_OK;
}

const ndp_kernel ndp_ref_add = {.run = run_add};

static ndp_status run_add_bias(const ndp_op_call *c) {
    const ndp_view *y = &c->in[0];
    for (int64_t t = 0; t < y->rows; t++)
        for (int64_t j = 0; j < y->cols; j++)
            ndp_view_set(y, t, j, ndp_view_get(y, t, j) + ndp_view_get(&c->in[1], 0, j));
    return NDP_OK;
}

const ndp_kernel ndp_ref_add_bias = {.run = run_add_bias};
