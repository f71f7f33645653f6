/* copy. */
#include "ops/ref/ref_kernels.h"

static double copy(const ndp_op_call *c, int64_t t, int64_t j) {
    return ndp_ref_in(c, 0, t, j) + (ndp_present(&c->in[1]) ? ndp_ref_in(c, 1, t, j) : 0);
}

NDP_REF_EACH(copy)
