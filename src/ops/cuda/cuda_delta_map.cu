/* delta_map, delta_map_back: a block of threads has a value head and goes through the pieces. delta_states: a block has
 * one state. */
#include "ops/cuda/cuda_delta_rule.cuh"
#include "ops/cuda/cuda_kernels.hpp"

extern "C" {
#define inline __host__ __device__ inline /* kernels also call the functions of this header */
#include "ops/row_pieces.h"
#undef inline
}

static __device__ void store_state(const delta_problem_views &p, const float *s, int64_t row, const ndp_view &to) {
    each_element(p.d, p.e, [&](int i, int j) { ndp_set(to, row + i, j, s[i * p.e + j]); });
}

/* The last document of the piece from `first` on begins there, or before the piece. */
static __device__ int64_t last_document(const delta_problem_views &p, int64_t first) {
    int64_t t = first + p.piece - 1;
    while (t > first && !delta_begins(p.start, t))
        t--;
    return t;
}

static __global__ void __launch_bounds__(DELTA_THREADS) ndp_delta_map_kernel(delta_problem_views p) {
    __shared__ delta_shared s;
    delta_buffers room = {p.scratch + blockIdx.x * p.floats};
    delta_triangles t = take_triangles(&room);
    int head = blockIdx.x;
    float *k = room.take(DELTA_CHUNK * p.d), *u = room.take(DELTA_CHUNK * p.e);
    float *rows = room.take(DELTA_CHUNK * p.e), *state = room.take(p.d * p.e);
    for (int64_t piece = 0; piece < p.rows; piece += p.piece) {
        int64_t first = last_document(p, piece);
        float one = delta_begins(p.start, first) ? 0.0f : 1.0f;
        each_element(p.d, p.e, [&](int i, int j) { state[i * p.e + j] = j == p.v_dim + i ? one : 0.0f; });
        while (first < piece + p.piece) {
            delta_gpu_chunk c = chunk_from(p, first);
            c.begins = false; /* 0 is a state as well */
            begin_chunk(p, c, head / p.group, nullptr, k, t, &s);
            begin_head(p, c, head, t, &s);
            make_u(p, c, head, k, t, &s, state, rows, u);
            next_state(p, c, k, &s, state, u, rows, state);
            first += c.n;
        }
        store_state(p, state, state_row(p, piece, head), p.states);
    }
}

static ndp_status run_delta_map(const ndp_op_call *c) {
    delta_problem_views p = problem_of_rows(c, c->in[0].rows, ndp_v_dim(c->attr) + c->attr->head_dim);
    p.k = c->in[0], p.v = c->in[1], p.g = c->in[2], p.b = c->in[3], p.start = c->in[4], p.states = c->out[0];
    p.floats = ndp_delta_map_floats(c->attr, p.e);
    return ndp_launch(c, ndp_delta_map_kernel, dim3((unsigned)c->attr->heads), dim3(DELTA_THREADS), 0, p);
}
NDP_CUDA_KERNEL_WITH_SCRATCH(delta_map)

/* The gradient of the state before the chunk, from that after it; dO and R are changed. */
static __device__ void back_chunk(const delta_problem_views &p, const delta_gpu_chunk &c, const delta_triangles &t,
                                  const delta_shared &s, float *q, float *k, float *d_o, float *r, float *ds) {
    int d = p.d, e = p.e, n = c.n;
    delta_product(n, e, d, of_columns(k, d), of_columns(ds, e), of_columns(r, e), 0, {}, s.until);
    delta_product(n, e, n, flipped(square_of(t.p)), of_columns(d_o, e), of_columns(r, e), 1, of_columns(r, e), nullptr);
    solve(n, e, t.a, r, true);
    each_element(n, e, [&](int i, int j) {
        d_o[i * e + j] *= s.since[i];
        r[i * e + j] *= s.read[i];
    });
    delta_product(d, e, n, flipped(of_columns(q, d)), of_columns(d_o, e), of_columns(ds, e), s.since[n - 1],
                  of_columns(ds, e), nullptr);
    delta_product(d, e, n, flipped(of_columns(k, d)), of_columns(r, e), of_columns(ds, e), 1, of_columns(ds, e),
                  nullptr);
}

/* Of the rows of a piece before the first document that begins in it. */
static __global__ void __launch_bounds__(DELTA_THREADS) ndp_delta_map_back_kernel(delta_problem_views p) {
    __shared__ delta_shared s;
    delta_buffers room = {p.scratch + blockIdx.x * p.floats};
    delta_triangles t = take_triangles(&room);
    int head = blockIdx.x;
    float *q = room.take(DELTA_CHUNK * p.d), *k = room.take(DELTA_CHUNK * p.d), *d_o = room.take(DELTA_CHUNK * p.e);
    float *r = room.take(DELTA_CHUNK * p.e), *ds = room.take(p.d * p.e);
    for (int64_t piece = 0; piece < p.rows; piece += p.piece) {
        int64_t end = piece;
        while (end < piece + p.piece && !delta_begins(p.start, end))
            end++;
        each_element(p.d, p.e, [&](int i, int j) { ds[i * p.e + j] = 0; });
        for (int64_t first = piece + ndp_div(end - piece - 1 + p.chunk, p.chunk) * p.chunk - p.chunk; first >= piece;
             first -= p.chunk) {
            delta_gpu_chunk c = chunk_from(p, first);
            begin_chunk(p, c, head / p.group, q, k, t, &s);
            begin_head(p, c, head, t, &s);
            each_element(c.n, p.e, [&](int i, int j) {
                d_o[i * p.e + j] = ndp_get(p.d_o, c.first + i, (int64_t)head * p.e + j);
            });
            back_chunk(p, c, t, s, q, k, d_o, r, ds);
        }
        store_state(p, ds, state_row(p, piece, head), p.states);
    }
}

static ndp_status run_delta_map_back(const ndp_op_call *c) {
    delta_problem_views p = problem_of_rows(c, c->in[1].rows, ndp_v_dim(c->attr));
    p.d_o = c->in[0], p.q = c->in[1], p.k = c->in[2], p.g = c->in[3], p.b = c->in[4], p.start = c->in[5];
    p.states = c->out[0], p.floats = ndp_delta_map_floats(c->attr, p.e);
    return ndp_launch(c, ndp_delta_map_back_kernel, dim3((unsigned)c->attr->heads), dim3(DELTA_THREADS), 0, p);
}
NDP_CUDA_KERNEL_WITH_SCRATCH(delta_map_back)

/* ---- states ---- */

struct delta_composition {
    ndp_view maps, backs, to;
    int d, e, heads, ranks, parts, place;
    float *scratch;
};

static __global__ void __launch_bounds__(DELTA_THREADS) ndp_delta_states_kernel(delta_composition p) {
    ndp_op_attr a = {};
    a.ranks = p.ranks, a.parts = p.parts, a.place = p.place;
    int size = p.d * p.e, head = blockIdx.x % p.heads;
    float *s = p.scratch + 2 * (int64_t)blockIdx.x * size, *next = s + size;
    int64_t own = ndp_row_piece_number(&a, blockIdx.x / p.heads), last = ndp_row_pieces(&a) - 1;
    bool back = p.backs.data;
    const ndp_view &from = back ? p.backs : p.maps;
    each_element(p.d, p.e, [&](int i, int j) { s[i * p.e + j] = 0; });
    for (int64_t n = back ? last : 0; n != own; n += back ? -1 : 1) {
        int64_t row = (ndp_row_piece_at(&a, n) * p.heads + head) * p.d;
        delta_matrix by = {(float *)p.maps.data + row * p.maps.ld + p.e, (int)p.maps.ld, 1};
        delta_matrix add = {(float *)from.data + row * from.ld, (int)from.ld, 1};
        delta_product(p.d, p.e, p.d, back ? flipped(by) : by, of_columns(s, p.e), of_columns(next, p.e), 1, add,
                      nullptr);
        float *other = s;
        s = next, next = other;
    }
    each_element(p.d, p.e, [&](int i, int j) { ndp_set(p.to, (int64_t)blockIdx.x * p.d + i, j, s[i * p.e + j]); });
}

static ndp_status run_delta_states(const ndp_op_call *c) {
    const ndp_op_attr *a = c->attr;
    delta_composition p = {c->in[0], c->in[1], c->out[0], a->head_dim, ndp_v_dim(a),
                           a->heads, a->ranks, a->parts,  a->place,    (float *)c->scratch};
    return ndp_launch(c, ndp_delta_states_kernel, dim3((unsigned)(ndp_row_pieces_here(a) * a->heads)),
                      dim3(DELTA_THREADS), 0, p);
}
NDP_CUDA_KERNEL_WITH_SCRATCH(delta_states)
