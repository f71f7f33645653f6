/* reduce_sum: a few thousand numbers, so one thread adds them up. */
#include "ops/ref/ref_kernels.h"

ndp_status ndp_ref_run_reduce_sum(const ndp_op_call *c) {
    double *sum = c->out[0].data;
    bool weighted = ndp_present(&c->in[1]);
    for (int64_t j = 0; j < c->in[0].cols; j++) {
        double total = c->attr->accumulate ? sum[j] : 0.0;
        for (int64_t t = 0; t < c->in[0].rows; t++)
            total += ndp_view_get(&c->in[0], t, j) * (weighted ? ndp_view_get(&c->in[1], t, 0) : 1);
        sum[j] = total;
    }
    return NDP_OK;
}

const ndp_kernel ndp_ref_reduce_sum = {.run = ndp_ref_run_reduce_sum};
