/* scale, cap, zero. */
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

/* All bits 0 are the number 0 in every type. */
ndp_status ndp_ref_run_zero(const ndp_op_call *c) {
    const ndp_view *x = &c->in[0];
    size_t size = ndp_dtype_size(x->dtype);
    for (int64_t t = 0; t < x->rows; t++)
        memset((char *)x->data + (size_t)(t * x->ld) * size, 0, (size_t)x->cols * size);
    return NDP_OK;
}

const ndp_kernel ndp_ref_zero = {.run = ndp_ref_run_zero};
