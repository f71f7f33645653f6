/* causal_conv and its gradients. */
#include "ops/ref/ref_kernels.h"

static bool sees(const ndp_op_call *c, int64_t t, int64_t row) { return row >= 0 && row >= ndp_int_at(&c->in[2], t); }

static double causal_conv(const ndp_op_call *c, int64_t t, int64_t i) {
    double sum = 0;
    for (int64_t j = 0; j < c->in[1].rows && sees(c, t, t - j); j++)
        sum += ndp_ref_in(c, 1, j, i) * ndp_ref_in(c, 0, t - j, i);
    return sum;
}

NDP_REF_EACH(causal_conv)

/* Row s gives to the rows t = s + j that see it. */
static double causal_conv_dx(const ndp_op_call *c, int64_t s, int64_t i) {
    double sum = ndp_present(&c->in[3]) ? ndp_ref_in(c, 3, s, i) : 0;
    for (int64_t j = 0; j < c->in[1].rows && s + j < c->in[0].rows; j++)
        if (sees(c, s + j, s))
            sum += ndp_ref_in(c, 1, j, i) * ndp_ref_in(c, 0, s + j, i);
    return sum;
}

NDP_REF_EACH(causal_conv_dx)

static double causal_conv_dw(const ndp_op_call *c, int64_t j, int64_t i) {
    double sum = 0;
    for (int64_t t = j; t < c->in[0].rows; t++)
        if (sees(c, t, t - j))
            sum += ndp_ref_in(c, 0, t, i) * ndp_ref_in(c, 1, t - j, i);
    return sum;
}

NDP_REF_EACH(causal_conv_dw)
