/* add, add_bias, add_columns. */
#include "ops/ref/ref_kernels.h"

static double add(const ndp_op_call *c, int64_t t, int64_t j) {
    return ndp_ref_in(c, 0, t, j) + ndp_ref_in(c, 1, t, j);
}

NDP_REF_EACH(add)

static double add_bias(const ndp_op_call *c, int64_t t, int64_t j) {
    return ndp_ref_in(c, 0, t, j) + ndp_ref_in(c, 1, 0, j);
}

NDP_REF_EACH(add_bias)

static double add_columns(const ndp_op_call *c, int64_t t, int64_t j) {
    int64_t i = j - c->attr->first;
    double y = ndp_ref_in(c, 0, t, j);
    return i >= 0 && i < c->in[1].cols ? y + ndp_ref_in(c, 1, t, i) : y;
}

NDP_REF_EACH(add_columns)
