/* scale, cap. */
#include "ops/ref/ref_kernels.h"

#include <math.h>

static ndp_status run_scale(const ndp_op_call *c) {
    for (int64_t t = 0; t < c->in[0].rows; t++)
        for (int64_t j = 0; j < c->in[0].cols; j++)
            ndp_view_set(&c->in[0], t, j, ndp_view_get(&c->in[0], t, j) * c->attr->scale);
    return NDP_OK;
}

const ndp_kernel ndp_ref_scale = {.run = run_scale};

static ndp_status run_cap(const ndp_op_call *c) {
    for (int64_t t = 0; t < c->in[0].rows; t++)
        for (int64_t j = 0; j < c->in[0].cols; j++)
            ndp_view_set(&c->in[0], t, j, c->attr->cap * tanh(ndp_view_get(&c->in[0], t, j) / c->attr->cap));
    return NDP_OK;
}

const ndp_kernel ndp_ref_cap = {.run = run_cap};
