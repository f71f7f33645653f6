/* delta_rule_bwd: a block of threads has a key head with all of its value heads. */
#include "ops/cuda/cuda_delta_rule.cuh"
#include "ops/cuda/cuda_kernels.hpp"

struct delta_gradients {
    delta_problem_views p;
    delta_gpu_chunk c;
    delta_shared *s;
    delta_triangles t;
    float *m, *w, *dp, *da;        /* the sums of dP L and of W over value heads; of one of them */
    float *q, *k, *dq, *dk, *with; /* rows of D columns; `with`: a product */
    float *d_o, *r, *rows;         /* of E columns: dO, R, others */
    float *kept;                   /* of value heads, one after another (ndp_delta_kept_floats) */
    int64_t kept_floats;
    int *firsts; /* the first rows of chunks */

    __device__ float *ds(int i) const { return kept + i * kept_floats; }
    __device__ float *u(int i) const { return ds(i) + p.d * p.e + c.first * p.e; }
    /* Before the chunk that is number `n` of those that have one. */
    __device__ float *state(int i, int n) const { return ds(i) + p.d * p.e + p.q.rows * p.e + (int64_t)n * p.d * p.e; }
};

/* States and U of all chunks. Returns how many chunks there are; *states: of those that have one before them. */
static __device__ int make_states(delta_gradients *g, int key, int *states) {
    const delta_problem_views &p = g->p;
    int chunks = 0;
    *states = 0;
    for (int64_t first = 0; first < p.q.rows; first += g->c.n) {
        g->c = chunk_from(p, first);
        if (threadIdx.x == 0)
            g->firsts[chunks] = (int)first;
        chunks++;
        begin_chunk(p, g->c, key, g->q, g->k, g->t, g->s);
        *states += g->c.loads;
        for (int i = 0; i < p.group; i++) {
            float *before = g->state(i, *states - 1);
            if (g->c.loads)
                load_state(p, p.states, state_row(p, first, key * p.group + i), before);
            begin_head(p, g->c, key * p.group + i, g->t, g->s);
            make_u(p, g->c, key * p.group + i, g->k, g->t, g->s, before, g->rows, g->u(i));
            if (!g->c.stops)
                next_state(p, g->c, g->k, g->s, before, g->u(i), g->rows, g->state(i, *states));
        }
        *states += !g->c.stops;
    }
    return chunks;
}

static __device__ void load_rows(const ndp_view &v, const delta_gpu_chunk &c, int head, int e, float *out) {
    each_element(c.n, e, [&](int i, int j) { out[i * e + j] = ndp_get(v, c.first + i, (int64_t)head * e + j); });
}

/* R, from dO and the gradient of the state after the chunk. Returns what the log of the decays up to the end gets. */
static __device__ float make_r(const delta_gradients &g, const float *u, float *ds) {
    const delta_problem_views &p = g.p;
    delta_shared *s = g.s;
    int e = p.e, n = g.c.n;
    float into_end = 0;
    if (!g.c.ends)
        delta_product(n, e, p.d, of_columns(g.k, p.d), of_columns(ds, e), of_columns(g.r, e), 0, {}, s->until);
    each_row(
        n, g.c.ends ? 0 : e, [&](int i, int j) { return u[i * e + j] * g.r[i * e + j]; },
        [&](int i, float x) { s->part[i] = x, s->along[i] = -2 * x; }); /* once more: it is in k^ . dk^ again */
    for (int i = 0; i < n; i++)
        into_end += s->part[i];
    delta_product(n, e, n, flipped(square_of(g.t.p)), of_columns(g.d_o, e), of_columns(g.r, e), g.c.ends ? 0.0f : 1.0f,
                  of_columns(g.r, e), nullptr);
    solve(n, e, g.t.a, g.r, true);
    return into_end;
}

/* dP L and W of the head are added to the sums, and what they say of the decays between rows. */
static __device__ void add_triangles(const delta_gradients &g, float *u) {
    int e = g.p.e, n = g.c.n, i = threadIdx.x;
    delta_matrix columns = flipped(of_columns(u, e));
    delta_product(n, n, e, of_columns(g.d_o, e), columns, square_of(g.dp), 0, {}, nullptr);
    delta_product(n, n, e, of_columns(g.r, e), columns, square_of(g.da), 0, {}, nullptr);
    each_element(n, n, [&](int row, int j) {
        int at = row * DELTA_CHUNK + j;
        float m = g.dp[at] * g.t.l[at], w = j < row ? -g.s->beta[row] * g.da[at] * g.t.l[at] : 0.0f;
        g.m[at] += m, g.w[at] += w;
        g.dp[at] = g.t.qk[at] * m + g.t.kk[at] * w;
    });
    if (i < n) {
        float sum = 0;
        for (int j = 0; j < n; j++)
            sum += g.dp[i * DELTA_CHUNK + j] - g.dp[j * DELTA_CHUNK + i];
        g.s->along[i] += sum;
    }
    __syncthreads();
}

/* Adds the product `with` to a gradient, and its rows' products with x to what the decays get. */
static __device__ void add_rows(const delta_gradients &g, const float *x, float *gradient) {
    int d = g.p.d;
    each_row(
        g.c.n, d, [&](int i, int j) { return x[i * d + j] * g.with[i * d + j]; },
        [&](int i, float sum) { g.s->along[i] += sum; });
    each_element(g.c.n, d, [&](int i, int j) { gradient[i * d + j] += g.with[i * d + j]; });
}

/* What of dq^ and dk^ meets the states. Returns what the log of the decays up to the end gets. */
static __device__ float through_states(const delta_gradients &g, float *state, float *u, float *ds) {
    int d = g.p.d, e = g.p.e, n = g.c.n;
    bool before = !g.c.begins, after = !g.c.ends;
    delta_matrix with = of_columns(g.with, d), before_t = flipped(of_columns(state, e));
    float both = 0;
    if (after)
        delta_product(n, d, e, of_columns(u, e), flipped(of_columns(ds, e)), with, 0, {}, g.s->until);
    if (before)
        delta_product(n, d, e, of_columns(g.r, e), before_t, with, after ? 1.0f : 0.0f, with, g.s->read);
    if (before || after)
        add_rows(g, g.k, g.dk);
    if (!before)
        return 0;
    delta_product(n, d, e, of_columns(g.d_o, e), before_t, with, 0, {}, g.s->since);
    add_rows(g, g.q, g.dq);
    for (int at = threadIdx.x; after && at < d * e; at += blockDim.x)
        both += state[at] * ds[at];
    return ndp_block_sum(both, g.s->room) * g.s->since[n - 1];
}

/* dv, db and dg of a value head. */
static __device__ void store_head(const delta_gradients &g, int head, const float *u, float into_end) {
    const delta_problem_views &p = g.p;
    const delta_shared *s = g.s;
    int e = p.e;
    if (p.dv.data)
        each_element(g.c.n, e, [&](int i, int j) {
            ndp_set(p.dv, g.c.first + i, (int64_t)head * e + j, s->beta[i] * g.r[i * e + j]);
        });
    if (p.db.data)
        each_row(
            g.c.n, e, [&](int i, int j) { return g.r[i * e + j] * u[i * e + j]; },
            [&](int i, float sum) { ndp_set(p.db, g.c.first + i, head, (1.0f - s->beta[i]) * sum); });
    if (p.dg.data && threadIdx.x == 0)
        for (int i = g.c.n - 1; i >= 0; i--)
            ndp_set(p.dg, g.c.first + i, head, into_end += s->along[i]);
    __syncthreads();
}

/* dS becomes the gradient of the state before the chunk. */
static __device__ void back_state(const delta_gradients &g, float *ds) {
    int d = g.p.d, e = g.p.e, n = g.c.n;
    each_element(n, e, [&](int i, int j) {
        g.d_o[i * e + j] *= g.s->since[i];
        g.r[i * e + j] *= g.s->read[i];
    });
    delta_product(d, e, n, flipped(of_columns(g.q, d)), of_columns(g.d_o, e), of_columns(ds, e),
                  g.c.ends ? 0.0f : g.s->since[n - 1], of_columns(ds, e), nullptr);
    delta_product(d, e, n, flipped(of_columns(g.k, d)), of_columns(g.r, e), of_columns(ds, e), 1, of_columns(ds, e),
                  nullptr);
}

/* dx of x^ = length x by, from dx^: length by (dx^ - x^ (x^ . dx^) / length^2). */
static __device__ void store_units(const delta_gradients &g, int key, const float *x, const float *by, float length,
                                   const float *gradient, const ndp_view &dx) {
    int d = g.p.d;
    if (!dx.data)
        return;
    each_row(
        g.c.n, d, [&](int i, int j) { return x[i * d + j] * gradient[i * d + j]; },
        [&](int i, float sum) { g.s->part[i] = sum / (length * length); });
    each_element(g.c.n, d, [&](int i, int j) {
        ndp_set(dx, g.c.first + i, (int64_t)key * d + j,
                length * by[i] * (gradient[i * d + j] - x[i * d + j] * g.s->part[i]));
    });
}

/* The triangles' parts of dq^ and dk^, for all value heads. */
static __device__ void close_chunk(const delta_gradients &g, int key) {
    int d = g.p.d, n = g.c.n;
    delta_matrix q = of_columns(g.q, d), k = of_columns(g.k, d), dq = of_columns(g.dq, d), dk = of_columns(g.dk, d);
    delta_product(n, d, n, square_of(g.m), k, dq, 1, dq, nullptr);
    delta_product(n, d, n, flipped(square_of(g.m)), q, dk, 1, dk, nullptr);
    delta_product(n, d, n, square_of(g.w), k, dk, 1, dk, nullptr);
    delta_product(n, d, n, flipped(square_of(g.w)), k, dk, 1, dk, nullptr);
    store_units(g, key, g.q, g.s->q_by, 1.0f / sqrtf((float)d), g.dq, g.p.dq);
    store_units(g, key, g.k, g.s->k_by, 1.0f, g.dk, g.p.dk);
}

static __device__ void take_gradients(delta_gradients *g) {
    const delta_problem_views &p = g->p;
    delta_buffers room = {p.scratch + blockIdx.x * p.floats};
    float **squares[] = {&g->m, &g->w, &g->dp, &g->da};
    float **of_q[] = {&g->q, &g->k, &g->dq, &g->dk, &g->with}, **of_v[] = {&g->d_o, &g->r, &g->rows};
    g->t = take_triangles(&room);
    for (float **one : squares)
        *one = room.take(DELTA_CHUNK * DELTA_CHUNK);
    for (float **one : of_q)
        *one = room.take(DELTA_CHUNK * p.d);
    for (float **one : of_v)
        *one = room.take(DELTA_CHUNK * p.e);
    g->kept = room.take(p.group * g->kept_floats), g->firsts = (int *)room.next;
}

static __global__ void __launch_bounds__(DELTA_THREADS)
    ndp_delta_rule_bwd_kernel(delta_problem_views p, int64_t kept_floats) {
    __shared__ delta_shared s;
    delta_gradients g = {};
    g.p = p, g.s = &s, g.kept_floats = kept_floats;
    take_gradients(&g);
    int key = blockIdx.x, states, chunks = make_states(&g, key, &states);
    for (int chunk = chunks - 1; chunk >= 0; chunk--) {
        g.c = chunk_from(p, g.firsts[chunk]);
        states -= !g.c.stops; /* now of those before the chunk */
        begin_chunk(p, g.c, key, g.q, g.k, g.t, &s);
        each_element(DELTA_CHUNK, DELTA_CHUNK,
                     [&](int i, int j) { g.m[i * DELTA_CHUNK + j] = g.w[i * DELTA_CHUNK + j] = 0; });
        each_element(DELTA_CHUNK, p.d, [&](int i, int j) { g.dq[i * p.d + j] = g.dk[i * p.d + j] = 0; });
        for (int i = 0; i < p.group; i++) {
            int head = key * p.group + i;
            float *before = g.state(i, states - 1), *u = g.u(i);
            begin_head(p, g.c, head, g.t, &s);
            load_rows(p.d_o, g.c, head, p.e, g.d_o);
            if (g.c.last)
                load_state(p, p.after, state_row(p, g.c.first, head), g.ds(i));
            float into_end = make_r(g, u, g.ds(i));
            add_triangles(g, u);
            into_end += through_states(g, before, u, g.ds(i));
            store_head(g, head, u, into_end);
            if (!g.c.begins)
                back_state(g, g.ds(i));
        }
        close_chunk(g, key);
        states -= g.c.loads;
    }
}

static ndp_status run_delta_rule_bwd(const ndp_op_call *c) {
    delta_problem_views p = problem_of(c, c->in + 1);
    p.d_o = c->in[0], p.after = c->in[8], p.dq = c->out[0], p.dk = c->out[1], p.dv = c->out[2], p.dg = c->out[3],
    p.db = c->out[4];
    p.floats = ndp_delta_backward_floats(c->attr, p.q.rows, p.chunk);
    return ndp_launch(c, ndp_delta_rule_bwd_kernel, dim3((unsigned)c->attr->kv_heads), dim3(DELTA_THREADS), 0, p,
                      ndp_delta_kept_floats(c->attr, p.q.rows, p.chunk));
}
NDP_CUDA_KERNEL_WITH_SCRATCH(delta_rule_bwd)
