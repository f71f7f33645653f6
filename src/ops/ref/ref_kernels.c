/* The device `ref`: plain loops in fp64, on one thread, for any storage type. All other kernels are tested against it.
 */
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

#define KERNEL(op) [NDP_OP_##op] = &ndp_ref_##op,
static const ndp_kernel *const kernels[NDP_OP_COUNT] = {NDP_KERNEL_OPS(KERNEL)};

const ndp_device ndp_device_ref = {.name = "ref", .executes = true, .fp64 = true, .kernels = kernels, NDP_HOST_DEVICE};
