/* gate_rows, gate_rows_dg. */
#include "ops/ref/ref_kernels.h"

#include <math.h>

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

static double gate_rows(const ndp_op_call *c, int64_t t, int64_t j) {
    return sigmoid(ndp_ref_in(c, 1, t, 0)) * ndp_ref_in(c, 0, t, j);
}

NDP_REF_EACH(gate_rows)

static double gate_rows_dg(const ndp_op_call *c, int64_t t, int64_t column) {
    double s = sigmoid(ndp_ref_in(c, 2, t, 0)), sum = 0;
    (void)column; /* there is one */
    for (int64_t j = 0; j < c->in[0].cols; j++)
        sum += ndp_ref_in(c, 0, t, j) * ndp_ref_in(c, 1, t, j);
    return s * (1 - s) * sum;
}

NDP_REF_EACH(gate_rows_dg)
