/* delta_rule: a block of threads has a value head. */
#include "ops/cuda/cuda_delta_rule.cuh"
#include "ops/cuda/cuda_kernels.hpp"

static __global__ void __launch_bounds__(DELTA_THREADS) ndp_delta_rule_kernel(delta_problem_views p) {
    __shared__ delta_shared s;
    delta_buffers room = {p.scratch + blockIdx.x * p.floats};
    delta_triangles t = take_triangles(&room);
    int head = blockIdx.x;
    float *q = room.take(DELTA_CHUNK * p.d), *k = room.take(DELTA_CHUNK * p.d), *u = room.take(DELTA_CHUNK * p.e);
    float *rows = room.take(DELTA_CHUNK * p.e), *state = room.take(p.d * p.e);
    for (int64_t first = 0; first < p.q.rows;) {
        delta_gpu_chunk c = chunk_from(p, first);
        begin_chunk(p, c, head / p.group, q, k, t, &s);
        begin_head(p, c, head, t, &s);
        if (c.loads)
            load_state(p, p.states, state_row(p, first, head), state);
        make_u(p, c, head, k, t, &s, state, rows, u);
        if (!c.begins)
            delta_product(c.n, p.e, p.d, of_columns(q, p.d), of_columns(state, p.e), of_columns(rows, p.e), 0, {},
                          s.since);
        delta_product(c.n, p.e, c.n, square_of(t.p), of_columns(u, p.e), of_columns(rows, p.e), c.begins ? 0.0f : 1.0f,
                      of_columns(rows, p.e), nullptr);
        each_element(c.n, p.e,
                     [&](int i, int j) { ndp_set(p.o, c.first + i, (int64_t)head * p.e + j, rows[i * p.e + j]); });
        if (!c.ends)
            next_state(p, c, k, &s, state, u, rows, state);
        first += c.n;
    }
}

static ndp_status run_delta_rule(const ndp_op_call *c) {
    delta_problem_views p = problem_of(c, c->in);
    p.o = c->out[0], p.floats = ndp_delta_forward_floats(c->attr);
    return ndp_launch(c, ndp_delta_rule_kernel, dim3((unsigned)c->attr->heads), dim3(DELTA_THREADS), 0, p);
}
NDP_CUDA_KERNEL_WITH_SCRATCH(delta_rule)
