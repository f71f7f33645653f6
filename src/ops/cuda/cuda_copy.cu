/* copy. */
#include "ops/cuda/cuda_kernels.hpp"
#include "ops/cuda/cuda_move.cuh"

struct copy_each {
    ndp_view x, y;
    int64_t bytes;
    __device__ void operator()(int64_t r, int64_t at) const { ndp_move(ndp_row_of(y, r), ndp_row_of(x, r), at, bytes); }
};

/* With an earlier gradient the sum, rounded once. */
struct convert_each {
    ndp_view x, acc, y;
    __device__ void operator()(int64_t r, int64_t c) const {
        ndp_raw raw = ndp_load8(x, r, c), before = acc.data ? ndp_load8(acc, r, c) : ndp_raw{};
        ndp_lanes v = ndp_widen(x.dtype, raw), w = ndp_widen(acc.dtype, before);
        for (int k = 0; acc.data && k < NDP_LANES; k++)
            v.x[k] += w.x[k];
        ndp_set8(y, r, c, v);
    }
};

static ndp_status run_copy(const ndp_op_call *c) {
    const ndp_view *x = &c->in[0], *acc = &c->in[1], *y = &c->out[0];
    if (x->dtype == y->dtype && !acc->data)
        return ndp_moves(c, x->rows, ndp_row_bytes(x), copy_each{*x, *y, ndp_row_bytes(x)});
    return ndp_each8(c, y, convert_each{*x, *acc, *y});
}
NDP_CUDA_KERNEL(copy)
