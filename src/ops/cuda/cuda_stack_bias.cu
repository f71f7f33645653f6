/* stack_bias, stack_bias_db. A block sums a group of columns over the rows of one group, so there are no atomics. */
#include "ops/cuda/cuda_kernel.cuh"
#include "ops/cuda/cuda_kernels.hpp"

/* The group of row t; as many as there are groups: it is of none. */
static __device__ __forceinline__ int group_of(const ndp_view &offsets, int64_t t) {
    int low = 0, high = (int)offsets.rows - 1; /* the answer is in low .. high */
    while (low < high) {
        int middle = (low + high) / 2;
        if (ndp_int(offsets, middle + 1) <= t)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct stack_bias_each {
    ndp_view y, b, offsets;
    float by;
    __device__ void operator()(int64_t t, int64_t c) const {
        int e = group_of(offsets, t);
        if (e == (int)b.rows)
            return;
        ndp_lanes v = ndp_get8(y, t, c), w = ndp_get8(b, e, c);
        for (int k = 0; k < NDP_LANES; k++)
            v.x[k] += by * w.x[k];
        ndp_set8(y, t, c, v);
    }
};
static ndp_status run_stack_bias(const ndp_op_call *c) {
    return ndp_each8(c, &c->in[0], stack_bias_each{c->in[0], c->in[1], c->in[2], 1.0f / (float)c->attr->parts});
}
NDP_CUDA_KERNEL(stack_bias)

enum { ACROSS = 16, DOWN = 16 }; /* threads of a block: groups of columns, rows at once */

/* With split sums, `place`, the rows of a group are summed in two halves. */
__global__ void __launch_bounds__(ACROSS *DOWN)
    ndp_stack_bias_db_kernel(ndp_view dy, ndp_view offsets, ndp_view db, float by, int place, bool add) {
    int64_t c = ((int64_t)blockIdx.y * ACROSS + threadIdx.x) * NDP_LANES, e = blockIdx.x;
    int64_t first = ndp_int(offsets, e), end = ndp_int(offsets, e + 1);
    int64_t middle = first + ndp_sum_split_at(end - first, place);
    ndp_lanes sum = {}, *room = (ndp_lanes *)ndp_shared_bytes;
    for (int half = 0; half < 2; half++) {
        ndp_lanes part = {};
        for (int64_t t = (half ? middle : first) + threadIdx.y; t < (half ? end : middle) && c < db.cols; t += DOWN) {
            ndp_lanes v = ndp_get8(dy, t, c);
            for (int k = 0; k < NDP_LANES; k++)
                part.x[k] += v.x[k];
        }
        for (int k = 0; k < NDP_LANES; k++)
            sum.x[k] += part.x[k];
    }
    room[threadIdx.y * ACROSS + threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || c >= db.cols)
        return;
    ndp_lanes all = {};
    for (int y = 0; y < DOWN; y++)
        for (int k = 0; k < NDP_LANES; k++)
            all.x[k] += by * room[y * ACROSS + threadIdx.x].x[k];
    if (add) {
        ndp_lanes before = ndp_get8(db, e, c);
        for (int k = 0; k < NDP_LANES; k++)
            all.x[k] += before.x[k];
    }
    ndp_set8(db, e, c, all);
}
static ndp_status run_stack_bias_db(const ndp_op_call *c) {
    const ndp_view *db = &c->out[0];
    dim3 grid((unsigned)db->rows, (unsigned)ndp_ceil_div(db->cols, (int64_t)ACROSS * NDP_LANES));
    return ndp_launch(c, ndp_stack_bias_db_kernel, grid, dim3(ACROSS, DOWN), ACROSS * DOWN * sizeof(ndp_lanes),
                      c->in[0], c->in[1], *db, 1.0f / (float)c->attr->parts, ndp_split_place(c->exec),
                      c->attr->accumulate);
}
NDP_CUDA_KERNEL(stack_bias_db)
