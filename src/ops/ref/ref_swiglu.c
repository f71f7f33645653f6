/* swiglu, swiglu_bwd. */
#include "ops/ref/ref_kernels.h"

#include <math.h>

static ndp_status run_swiglu(const ndp_op_call *c) {
    const ndp_view *gu = &c->in[0], *a = &c->out[0];
    for (int64_t t = 0; t < a->rows; t++)
        for (int64_t j = 0; j < a->cols; j++) {
            double g = ndp_view_get(gu, t, j);
            ndp_view_set(a, t, j, g / (1.0 + exp(-g)) * ndp_view_get(gu, t, a->cols + j));
        }
    return NDP_OK;
}

const ndp_kernel ndp_ref_swiglu = {.run = run_swiglu};

static ndp_status run_swiglu_bwd(const ndp_op_call *c) {
    const ndp_view *da = &c->in[0], *gu = &c->in[1], *dgu = &c->out[0];
    for (int64_t t = 0; t < da->rows; t++)
        for (int64_t j = 0; j < da->cols; j++) {
            double g = ndp_view_get(gu, t, j), u = ndp_view_get(gu, t, da->cols + j), d = ndp_view_get(da, t, j);
            double s = 1.0 / (1.0 + exp(-g));
            ndp_view_set(dgu, t, j, d * u * s * (1.0 + g * (1.0 - s)));
            ndp_view_set(dgu, t, da->cols + j, d * g * s);
        }
    return NDP_OK;
}

const ndp_kernel ndp_ref_swiglu_bwd = {.run = run_swiglu_bwd};
