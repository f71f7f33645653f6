/* kv_append. */
#include "ops/cuda/cuda_kernels.hpp"
#include "ops/cuda/cuda_move.cuh"

struct kv_append_each {
    ndp_view cache, fresh, row;
    int64_t bytes;
    __device__ void operator()(int64_t r, int64_t at) const {
        ndp_move(ndp_row_of(cache, ndp_int(row, r)), ndp_row_of(fresh, r), at, bytes);
    }
};
static ndp_status run_kv_append(const ndp_op_call *c) {
    const ndp_view *fresh = &c->in[1];
    int64_t bytes = ndp_row_bytes(fresh);
    return ndp_moves(c, fresh->rows, bytes, kv_append_each{c->in[0], *fresh, c->in[2], bytes});
}
NDP_CUDA_KERNEL(kv_append)
