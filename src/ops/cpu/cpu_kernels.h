/* The kernels of the device `cpu`, by op. */
#ifndef NDP_OPS_CPU_CPU_KERNELS_H
#define NDP_OPS_CPU_CPU_KERNELS_H

#include "ops/op.h"

#define NDP_CPU_DECLARE(op) extern const ndp_kernel ndp_cpu_##op;
NDP_KERNEL_OPS(NDP_CPU_DECLARE)
#undef NDP_CPU_DECLARE

#endif
