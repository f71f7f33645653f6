/* gate_rows, gate_rows_dg, gate_by, gate_by_bwd. */
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

static double gate_by(const ndp_op_call *c, int64_t t, int64_t j) {
    double gate = ndp_ref_in(c, 1, t, j);
    return ndp_ref_in(c, 0, t, j) * sigmoid(gate) * (c->attr->sigmoid ? 1 : gate);
}

NDP_REF_EACH(gate_by)

static ndp_status run_gate_by_bwd(const ndp_op_call *c) {
    const ndp_view *dx = &c->out[0], *dgate = &c->out[1];
    for (int64_t t = 0; t < c->in[0].rows; t++)
        for (int64_t j = 0; j < c->in[0].cols; j++) {
            double dy = ndp_ref_in(c, 0, t, j), x = ndp_ref_in(c, 1, t, j), gate = ndp_ref_in(c, 2, t, j);
            double s = sigmoid(gate), slope = s * (1 - s);
            if (ndp_present(dx))
                ndp_view_set(dx, t, j, dy * s * (c->attr->sigmoid ? 1 : gate));
            if (ndp_present(dgate))
                ndp_view_set(dgate, t, j, dy * x * (c->attr->sigmoid ? slope : s + gate * slope));
        }
    return NDP_OK;
}

const ndp_kernel ndp_ref_gate_by_bwd = {.run = run_gate_by_bwd};
