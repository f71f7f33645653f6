/* The loop of kernels that are a formula for each element (ref_kernels.h). */
#include "ops/ref/ref_kernels.h"

ndp_status ndp_ref_each(const ndp_op_call *c, ndp_ref_formula *formula) {
    const ndp_view *out = &c->out[0];
    for (int64_t t = 0; t < out->rows; t++)
        for (int64_t j = 0; j < out->cols; j++) {
            double x = formula(c, t, j);
            ndp_view_set(out, t, j, c->attr->accumulate ? ndp_view_get(out, t, j) + x : x);
        }
    return NDP_OK;
}
