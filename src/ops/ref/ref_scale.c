/* scale, scale_by, cap, zero. */
#include "ops/ref/ref_kernels.h"

#include <math.h>

static double scale(const ndp_op_call *c, int64_t t, int64_t j) { return ndp_ref_in(c, 0, t, j) * c->attr->scale; }

NDP_REF_EACH(scale)

static double scale_by(const ndp_op_call *c, int64_t t, int64_t j) {
    return ndp_ref_in(c, 0, t, j) * ndp_ref_in(c, 1, 0, 0);
}

NDP_REF_EACH(scale_by)

static double cap(const ndp_op_call *c, int64_t t, int64_t j) {
    return c->attr->cap * tanh(ndp_ref_in(c, 0, t, j) / c->attr->cap);
}

NDP_REF_EACH(cap)

ndp_status ndp_ref_run_zero(const ndp_op_call *c) {
    ndp_view_clear(&c->in[0]);
    return NDP_OK;
}

const ndp_kernel ndp_ref_zero = {.run = ndp_ref_run_zero};
