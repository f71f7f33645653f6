/* copy. */
#include "ops/ref/ref_kernels.h"

static ndp_status run_copy(const ndp_op_call *c) {
    for (int64_t t = 0; t < c->out[0].rows; t++)
        for (int64_t j = 0; j < c->out[0].cols; j++)
            ndp_view_set(&c->out[0], t, j,
                         ndp_view_get(&c->in[0], t, j) + (ndp_present(&c->in[1]) ? ndp_view_get(&c->in[1], t, j) : 0));
    return NDP_OK;
}

const ndp_kernel ndp_ref_copy = {.run = run_copy};
