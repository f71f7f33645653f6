/* The device `ref`: plain loops in fp64, on one thread, for any storage type. All other kernels are tested against it.
 */
#include "ops/ref/ref_kernels.h"

#define KERNEL(op) [NDP_OP_##op] = &ndp_ref_##op,
static const ndp_kernel *const kernels[NDP_OP_COUNT] = {NDP_KERNEL_OPS(KERNEL)};

const ndp_device ndp_device_ref = {.name = "ref", .executes = true, .fp64 = true, .kernels = kernels, NDP_HOST_DEVICE};
