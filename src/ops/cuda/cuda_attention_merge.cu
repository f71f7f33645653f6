/* attention_merge. */
#include "ops/cuda/cuda_kernel.cuh"
#include "ops/cuda/cuda_kernels.hpp"

struct merged {
    ndp_view o, lse, o2, lse2, out; /* out: of lse; may be one of the two */
    int64_t head_dim;
};

/* A team of lanes for each head of a row; its first lane writes lse when all have read it. */
static __global__ void ndp_attention_merge_kernel(merged m, int team) {
    int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / team, t = ndp_div(i, m.lse.cols);
    int64_t h = i - t * m.lse.cols, lane = threadIdx.x % team;
    bool here = t < m.o.rows;
    float a = here ? ndp_get(m.lse, t, h) : 0, b = here ? ndp_get(m.lse2, t, h) : 0, high = fmaxf(a, b);
    float shift = high == -INFINITY ? 0 : high, ea = expf(a - shift), eb = expf(b - shift), sum = ea + eb;
    float by = sum == 0 ? 0 : 1 / sum;
    __syncwarp();
    if (!here)
        return;
    if (lane == 0)
        ndp_set(m.out, t, h, shift + logf(sum));
    ndp_view o = ndp_cut(m.o, h * m.head_dim, m.head_dim), o2 = ndp_cut(m.o2, h * m.head_dim, m.head_dim);
    for (int64_t c = lane * NDP_LANES; c < m.head_dim; c += team * NDP_LANES) {
        ndp_raw p = ndp_load8(o, t, c), q = ndp_load8(o2, t, c);
        ndp_lanes v = ndp_widen(o.dtype, p), w = ndp_widen(o2.dtype, q);
        for (int k = 0; k < NDP_LANES; k++)
            v.x[k] = ea * by * v.x[k] + eb * by * w.x[k];
        ndp_set8(o, t, c, v);
    }
}

static ndp_status run_attention_merge(const ndp_op_call *c) {
    const ndp_view *o = &c->in[0], *lse = &c->in[1];
    merged m = {*o, *lse, c->in[2], c->in[3], c->out[1], o->cols / lse->cols};
    int team = 1;
    while (team * NDP_LANES < m.head_dim && team < NDP_WARP)
        team *= 2;
    int64_t all = o->rows * lse->cols * team;
    unsigned threads = ndp_block_of(all, 256);
    return ndp_launch(c, ndp_attention_merge_kernel, dim3((unsigned)ndp_ceil_div(all, threads)), dim3(threads), 0, m, team);
}
NDP_CUDA_KERNEL(attention_merge)
