/* linear_db. */
#include "ops/cuda/cuda_columns.cuh"
#include "ops/cuda/cuda_kernels.hpp"

struct linear_db_of {
    ndp_view dy;
    __device__ ndp_lanes operator()(int64_t t, int64_t, int64_t c) const { return ndp_get8(dy, t, c); }
};
static ndp_status run_linear_db(const ndp_op_call *c) { return ndp_columns(c, c->in[0].rows, linear_db_of{c->in[0]}); }
NDP_CUDA_KERNEL_WITH_SCRATCH(linear_db)
