/* embedding, embedding_dw. */
#include "ops/cuda/cuda_kernels.hpp"
#include "ops/cuda/cuda_move.cuh"

/* Ids of rows: the row of the table that row t names; -1: none. */
struct table_rows {
    ndp_view ids;
    int64_t first, rows;
    __device__ int operator()(int64_t t) const {
        int64_t row = ndp_int(ids, t) - first;
        return row >= 0 && row < rows ? (int)row : -1;
    }
};

struct embedding_each {
    table_rows row_of;
    ndp_view table, x;
    int64_t bytes;
    __device__ void operator()(int64_t t, int64_t at) const {
        int row = row_of(t);
        ndp_move(ndp_row_of(x, t), row < 0 ? nullptr : ndp_row_of(table, row), at, bytes);
    }
};
static ndp_status run_embedding(const ndp_op_call *c) {
    const ndp_view *table = &c->in[1], *x = &c->out[0];
    int64_t bytes = ndp_row_bytes(x);
    return ndp_moves(c, x->rows, bytes, embedding_each{{c->in[0], c->attr->first, table->rows}, *table, *x, bytes});
}
NDP_CUDA_KERNEL(embedding)

/* ---- the gradient: rows of one id are summed by the threads of the first of them, in order ---- */

/* Scratch memory, T numbers each: rows ordered by id, then by themselves; where those of row t's id begin there; how
 * many there are, 0 where t is not the first. */
struct id_order {
    int *rows, *begin, *count;
};
/* A warp for each row t counts the ids that are smaller, and the equal ones before it and in all. */
static __global__ void ndp_id_order_kernel(table_rows row_of, int64_t n, id_order o) {
    int64_t t = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / NDP_WARP;
    int mine = t < n ? row_of(t) : -1, smaller = 0, before = 0, equal = 0;
    for (int64_t i = threadIdx.x % NDP_WARP; t < n && i < n; i += NDP_WARP) {
        int other = row_of(i);
        smaller += other < mine, equal += other == mine, before += other == mine && i < t;
    }
    for (int with = NDP_WARP / 2; with > 0; with /= 2) {
        smaller += __shfl_xor_sync(0xffffffffu, smaller, with);
        before += __shfl_xor_sync(0xffffffffu, before, with);
        equal += __shfl_xor_sync(0xffffffffu, equal, with);
    }
    if (t < n && threadIdx.x % NDP_WARP == 0) {
        o.rows[smaller + before] = (int)t;
        o.begin[t] = smaller;
        o.count[t] = mine >= 0 && before == 0 ? equal : 0;
    }
}

struct embedding_dw_each {
    table_rows row_of;
    id_order o;
    ndp_view dx, dw;
    bool add, last_first;
    /* Row i of those with the id of row t. */
    __device__ ndp_raw row(int64_t t, int i, int64_t c) const {
        int at = o.begin[t] + (last_first ? o.count[t] - 1 - i : i);
        return ndp_load8(dx, o.rows[at], c);
    }
    __device__ void operator()(int64_t t, int64_t c) const {
        int n = o.count[t];
        if (n == 0)
            return;
        int id = row_of(t);
        ndp_lanes sum = {};
        if (add)
            sum = ndp_get8(dw, id, c);
        for (int i = 0; i < n; i += 4) { /* loads of four rows at once */
            ndp_raw next[4];
            for (int k = 0; k < 4 && i + k < n; k++)
                next[k] = row(t, i + k, c);
            for (int k = 0; k < 4 && i + k < n; k++) {
                ndp_lanes v = ndp_widen(dx.dtype, next[k]);
                for (int j = 0; j < NDP_LANES; j++)
                    sum.x[j] += v.x[j];
            }
        }
        ndp_set8(dw, id, c, sum);
    }
};

struct zero_each {
    ndp_view x;
    __device__ void operator()(int64_t r, int64_t c) const { ndp_store8(x, r, c, ndp_raw{}); }
};

static ndp_status run_embedding_dw(const ndp_op_call *c) {
    const ndp_view *dx = &c->in[1], *dw = &c->out[0];
    table_rows row_of = {c->in[0], c->attr->first, dw->rows};
    int *room = (int *)c->scratch;
    id_order o = {room, room + dx->rows, room + 2 * dx->rows};
    bool add = c->attr->accumulate, last_first = ndp_split_place(c->exec) > 0;
    if (!add)
        NDP_TRY(ndp_each8(c, dw, zero_each{*dw}));
    int64_t lanes = dx->rows * NDP_WARP;
    unsigned threads = ndp_block_of(lanes, 256);
    NDP_TRY(ndp_launch(c, ndp_id_order_kernel, dim3((unsigned)ndp_ceil_div(lanes, threads)), dim3(threads), 0, row_of,
                       dx->rows, o));
    return ndp_each8(c, dx, embedding_dw_each{row_of, o, *dx, *dw, add, last_first});
}
NDP_CUDA_KERNEL_WITH_SCRATCH(embedding_dw)
