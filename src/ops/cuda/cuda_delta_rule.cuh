/* What delta_rule and delta_rule_bwd share, by the formulas of ops/delta_rule.c: a block of threads has a value head,
 * in the backward a key head with all of its value heads, and goes through the chunks in order. Its buffers are scratch
 * memory (cuda_scratch.h); each of its products is spread over its threads, an element is one thread's. Plain: products
 * read their operands through the caches. */
#ifndef NDP_OPS_CUDA_CUDA_DELTA_RULE_CUH
#define NDP_OPS_CUDA_CUDA_DELTA_RULE_CUH

#include "ops/cuda/cuda_kernel.cuh"

enum { DELTA_THREADS = 256, DELTA_CHUNK = NDP_DELTA_CHUNK, DELTA_TILE = 4 };

/* Element (i, j) is p[i row + j col]. */
struct delta_matrix {
    float *p;
    int row, col;
};
static __device__ __forceinline__ delta_matrix flipped(const delta_matrix &m) { return {m.p, m.col, m.row}; }
static __device__ __forceinline__ delta_matrix of_columns(float *p, int columns) { return {p, columns, 1}; }
static __device__ __forceinline__ delta_matrix square_of(float *p) { return of_columns(p, DELTA_CHUNK); }

/* c [rows, cols] = by old + scale[i] a [rows, depth] b [depth, cols]. by 0: old is not read; scale NULL: 1. */
static __device__ void delta_product(int rows, int cols, int depth, delta_matrix a, delta_matrix b, delta_matrix c,
                                     float by, delta_matrix old, const float *scale) {
    int across = (cols + DELTA_TILE - 1) / DELTA_TILE, tiles = (rows + DELTA_TILE - 1) / DELTA_TILE * across;
    for (int tile = threadIdx.x; tile < tiles; tile += blockDim.x) {
        int i0 = tile / across * DELTA_TILE, j0 = tile % across * DELTA_TILE;
        float sum[DELTA_TILE][DELTA_TILE] = {};
        const float *from_a[DELTA_TILE], *from_b[DELTA_TILE];
        for (int k = 0; k < DELTA_TILE; k++) {
            from_a[k] = a.p + min(i0 + k, rows - 1) * a.row;
            from_b[k] = b.p + min(j0 + k, cols - 1) * b.col;
        }
        for (int l = 0; l < depth; l++) {
            float x[DELTA_TILE], y[DELTA_TILE];
#pragma unroll
            for (int k = 0; k < DELTA_TILE; k++)
                x[k] = from_a[k][l * a.col], y[k] = from_b[k][l * b.row];
#pragma unroll
            for (int i = 0; i < DELTA_TILE; i++)
#pragma unroll
                for (int j = 0; j < DELTA_TILE; j++)
                    sum[i][j] += x[i] * y[j];
        }
        for (int i = i0; i < min(i0 + DELTA_TILE, rows); i++)
            for (int j = j0; j < min(j0 + DELTA_TILE, cols); j++)
                c.p[i * c.row + j * c.col] = sum[i - i0][j - j0] * (scale ? scale[i] : 1.0f) +
                                             (by != 0 ? by * old.p[i * old.row + j * old.col] : 0.0f);
    }
    __syncthreads();
}

struct delta_problem_views {
    ndp_view q, k, v, g, b, start, o;
    ndp_view d_o, dq, dk, dv, dg, db; /* backward only */
    ndp_view states, after;           /* of pieces: states before, gradients of those after; or what is made of each */
    int d, e, v_dim, heads, group, chunk; /* e: columns of states; v has v_dim of them, its others are 0 */
    int64_t rows, piece;                  /* of the call, of a piece */
    float *scratch;
    int64_t floats; /* of a block */
};

/* Of a chunk; the first half is of a key head, the other of one of its value heads. */
struct delta_shared {
    float q_by[DELTA_CHUNK], k_by[DELTA_CHUNK];
    float decay[DELTA_CHUNK], since[DELTA_CHUNK], until[DELTA_CHUNK], beta[DELTA_CHUNK], read[DELTA_CHUNK];
    float along[DELTA_CHUNK], part[DELTA_CHUNK], room[NDP_WARP];
};

struct delta_gpu_chunk {
    int64_t first;
    int n;
    bool begins, ends; /* the state before it is 0, the gradient of that after it is */
    bool loads, last;  /* the state before it is of another rank, the gradient of that after it is */
    bool stops;        /* no chunk here reads the state after it */
};

static __device__ __forceinline__ bool delta_begins(const ndp_view &start, int64_t t) { return ndp_int(start, t) >= t; }

static __device__ delta_gpu_chunk chunk_from(const delta_problem_views &d, int64_t first) {
    int64_t end = (ndp_div(first, d.piece) + 1) * d.piece;
    bool fresh = delta_begins(d.start, first), at_first = first + d.piece == end;
    delta_gpu_chunk c = {first, 1, fresh || (at_first && !d.states.data), false, false, false, false};
    c.loads = at_first && !c.begins;
    while (c.n < d.chunk && first + c.n < end && !delta_begins(d.start, first + c.n))
        c.n++;
    c.stops = first + c.n == end || delta_begins(d.start, first + c.n);
    c.last = first + c.n == end && d.after.data;
    c.ends = c.stops && !c.last;
    return c;
}

/* A block's buffers, one after another. */
struct delta_buffers {
    float *next;
    __device__ float *take(int64_t floats) {
        float *p = next;
        next += floats;
        return p;
    }
};

struct delta_triangles {
    float *kk, *qk, *l, *a, *p;
};

static __device__ delta_triangles take_triangles(delta_buffers *b) {
    delta_triangles t;
    float **all[] = {&t.kk, &t.qk, &t.l, &t.a, &t.p};
    for (float **one : all)
        *one = b->take(DELTA_CHUNK * DELTA_CHUNK);
    return t;
}

/* f(i, the sum of terms(i, j) over j < columns) for each row, by a warp each. */
template <typename T, typename F> static __device__ void each_row(int rows, int columns, T terms, F f) {
    for (int i = threadIdx.x / NDP_WARP; i < rows; i += blockDim.x / NDP_WARP) {
        float sum = 0;
        for (int j = threadIdx.x % NDP_WARP; j < columns; j += NDP_WARP)
            sum += terms(i, j);
        sum = ndp_warp_sum(sum);
        if (threadIdx.x % NDP_WARP == 0)
            f(i, sum);
    }
    __syncthreads();
}

/* f(i, j) for all elements. */
template <typename F> static __device__ void each_element(int rows, int columns, F f) {
    for (int at = threadIdx.x; at < rows * columns; at += blockDim.x)
        f(at / columns, at % columns);
    __syncthreads();
}

/* The first row of a head in a matrix of states of pieces, of that of row t. */
static __device__ __forceinline__ int64_t state_row(const delta_problem_views &p, int64_t t, int head) {
    return (ndp_div(t, p.piece) * p.heads + head) * p.d;
}
static __device__ __forceinline__ void load_state(const delta_problem_views &p, const ndp_view &from, int64_t row,
                                                  float *s) {
    each_element(p.d, p.e, [&](int i, int j) { s[i * p.e + j] = ndp_get(from, row + i, j); });
}

/* q^ or k^ of the chunk; by: what rows were multiplied by, less `length`. */
static __device__ void load_units(const ndp_view &v, const delta_gpu_chunk &c, int head, int d, float length,
                                  float *out, float *by) {
    auto square = [&](int i, int j) {
        float x = ndp_get(v, c.first + i, (int64_t)head * d + j);
        return x * x;
    };
    each_row(c.n, d, square, [&](int i, float sum) { by[i] = 1.0f / sqrtf(sum + (float)NDP_DELTA_EPS); });
    each_element(c.n, d, [&](int i, int j) {
        out[i * d + j] = ndp_get(v, c.first + i, (int64_t)head * d + j) * length * by[i];
    });
}

/* Of a key head. */
static __device__ void begin_chunk(const delta_problem_views &p, const delta_gpu_chunk &c, int key, float *q, float *k,
                                   const delta_triangles &t, delta_shared *s) {
    if (p.q.data)
        load_units(p.q, c, key, p.d, 1.0f / sqrtf((float)p.d), q, s->q_by);
    load_units(p.k, c, key, p.d, 1.0f, k, s->k_by);
    delta_matrix columns = flipped(of_columns(k, p.d));
    delta_product(c.n, c.n, p.d, of_columns(k, p.d), columns, square_of(t.kk), 0, {}, nullptr);
    if (p.q.data)
        delta_product(c.n, c.n, p.d, of_columns(q, p.d), columns, square_of(t.qk), 0, {}, nullptr);
}

/* Of a value head: decays, A and P. */
static __device__ void begin_head(const delta_problem_views &p, const delta_gpu_chunk &c, int head,
                                  const delta_triangles &t, delta_shared *s) {
    int i = threadIdx.x;
    if (i < c.n) {
        s->decay[i] = expf(ndp_get(p.g, c.first + i, head));
        s->beta[i] = ndp_sigmoid(ndp_get(p.b, c.first + i, head));
    }
    __syncthreads();
    if (i < c.n) { /* column i */
        float by = 1;
        for (int row = 0; row < c.n; row++) {
            by *= row > i ? s->decay[row] : 1.0f;
            t.l[row * DELTA_CHUNK + i] = row < i ? 0.0f : by;
        }
        s->until[i] = by;
    }
    __syncthreads();
    if (i < c.n) {
        s->since[i] = s->decay[0] * t.l[i * DELTA_CHUNK];
        s->read[i] = -s->since[i] * s->beta[i];
    }
    each_element(c.n, c.n, [&](int row, int j) {
        int at = row * DELTA_CHUNK + j;
        t.a[at] = j < row ? s->beta[row] * t.kk[at] * t.l[at] : 0.0f;
        if (p.q.data)
            t.p[at] = t.qk[at] * t.l[at];
    });
}

/* (I + A) x = x, or (I + A)^T, in place: a thread has a column. */
static __device__ void solve(int n, int e, const float *a, float *x, bool back) {
    for (int j = threadIdx.x; j < e; j += blockDim.x)
        for (int k = 1; k < n; k++) {
            int i = back ? n - 1 - k : k;
            float sum = x[i * e + j];
            for (int l = 0; l < k; l++) {
                int from = back ? n - 1 - l : l;
                sum -= a[back ? from * DELTA_CHUNK + i : i * DELTA_CHUNK + from] * x[from * e + j];
            }
            x[i * e + j] = sum;
        }
    __syncthreads();
}

/* U, from v and the state before the chunk; `rows` is a buffer. */
static __device__ void make_u(const delta_problem_views &p, const delta_gpu_chunk &c, int head, float *k,
                              const delta_triangles &t, const delta_shared *s, float *state, float *rows, float *u) {
    if (!c.begins)
        delta_product(c.n, p.e, p.d, of_columns(k, p.d), of_columns(state, p.e), of_columns(rows, p.e), 0, {},
                      s->since);
    each_element(c.n, p.e, [&](int i, int j) {
        float v = j < p.v_dim ? ndp_get(p.v, c.first + i, (int64_t)head * p.v_dim + j) : 0.0f;
        u[i * p.e + j] = s->beta[i] * (c.begins ? v : v - rows[i * p.e + j]);
    });
    solve(c.n, p.e, t.a, u, false);
}

/* The state after the chunk, from U; `rows` is a buffer, `to` may be `state`. */
static __device__ void next_state(const delta_problem_views &p, const delta_gpu_chunk &c, float *k,
                                  const delta_shared *s, float *state, const float *u, float *rows, float *to) {
    each_element(c.n, p.e, [&](int i, int j) { rows[i * p.e + j] = s->until[i] * u[i * p.e + j]; });
    delta_product(p.d, p.e, c.n, flipped(of_columns(k, p.d)), of_columns(rows, p.e), of_columns(to, p.e),
                  c.begins ? 0.0f : s->since[c.n - 1], of_columns(state, p.e), nullptr);
}

/* Without operands. */
static inline delta_problem_views problem_of_rows(const ndp_op_call *c, int64_t rows, int e) {
    delta_problem_views p = {};
    p.d = c->attr->head_dim, p.e = e, p.v_dim = ndp_v_dim(c->attr);
    p.heads = c->attr->heads, p.group = ndp_delta_group(c->attr);
    p.rows = rows, p.piece = rows / (c->attr->ranks > 0 ? c->attr->parts : 1);
    p.chunk = (int)ndp_delta_chunk_rows(c->exec);
    p.scratch = (float *)c->scratch;
    return p;
}

/* q and what follows it. */
static inline delta_problem_views problem_of(const ndp_op_call *c, const ndp_view *in) {
    delta_problem_views p = problem_of_rows(c, in[0].rows, ndp_v_dim(c->attr));
    p.q = in[0], p.k = in[1], p.v = in[2], p.g = in[3], p.b = in[4], p.start = in[5], p.states = in[6];
    return p;
}

#endif
