/* The device that plans for a GPU: what programs depend on, and what kernels need, without a kernel. So a plan for
 * GPUs is the same with and without a plugin. */
#include "ops/cuda/cuda_scratch.h"
#include "ops/devices.h"

static size_t scratch(const ndp_op_call *c) {
#define CASE(op)                                                                                                       \
    case NDP_OP_##op:                                                                                                  \
        return ndp_scratch_##op(c);
    switch (c->op->id) {
        NDP_CUDA_SCRATCH_OPS(CASE)
    default:
        return 0;
    }
}

static const ndp_kernel planned = {.scratch = scratch};

#define KERNEL(op) [NDP_OP_##op] = &planned,
static const ndp_kernel *const kernels[NDP_OP_COUNT] = {NDP_KERNEL_OPS(KERNEL)};

/* There, since the device moves the data of collectives itself. Never called. */
static ndp_status sum(ndp_queue *q, const ndp_rank_sum *s) {
    (void)q, (void)s;
    return NDP_FAIL(NDP_EBUG, "a device that only plans has no data to sum");
}

const ndp_device ndp_device_gpu = {.name = "gpu", .kernels = kernels, .sum = sum};
