/* count_valid, loss_scale. */
#include "ops/ref/ref_kernels.h"

ndp_status ndp_ref_run_count_valid(const ndp_op_call *c) {
    const ndp_view *labels = &c->in[0];
    int64_t valid = 0;
    for (int64_t r = 0; r < labels->rows; r++) {
        const int32_t *row = (const int32_t *)labels->data + r * labels->ld;
        for (int64_t t = 0; t < labels->cols; t++)
            valid += row[t] >= 0 && (row[t] & c->attr->mask) == c->attr->mask;
    }
    *(int64_t *)c->out[0].data = valid;
    return NDP_OK;
}

const ndp_kernel ndp_ref_count_valid = {.run = ndp_ref_run_count_valid};

ndp_status ndp_ref_run_loss_scale(const ndp_op_call *c) {
    int64_t valid = *(const int64_t *)c->in[0].data;
    *(double *)c->out[0].data = valid > 0 ? 1.0 / (double)valid : 0.0;
    return NDP_OK;
}

const ndp_kernel ndp_ref_loss_scale = {.run = ndp_ref_run_loss_scale};
