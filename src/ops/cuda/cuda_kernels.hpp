/* The kernels of the devices `cuda` and `sim`, by op. */
#ifndef NDP_OPS_CUDA_CUDA_KERNELS_HPP
#define NDP_OPS_CUDA_CUDA_KERNELS_HPP

extern "C" {
#include "ops/cuda/cuda_scratch.h"
}

#define NDP_CUDA_DECLARE(op) extern const ndp_kernel ndp_cuda_##op;
NDP_KERNEL_OPS(NDP_CUDA_DECLARE)
#undef NDP_CUDA_DECLARE

/* The kernel of an op that needs no scratch memory and no preparation: run_<op>. */
#define NDP_CUDA_KERNEL(op) const ndp_kernel ndp_cuda_##op = {run_##op, nullptr, nullptr};
/* One that needs scratch memory: one of NDP_CUDA_SCRATCH_OPS. */
#define NDP_CUDA_KERNEL_WITH_SCRATCH(op) const ndp_kernel ndp_cuda_##op = {run_##op, ndp_scratch_##op, nullptr};

#endif
