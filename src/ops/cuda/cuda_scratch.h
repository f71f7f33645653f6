/* Bytes of scratch memory that the kernels of CUDA devices need, from the shapes of a call alone: for the kernels, and
 * for plans, which are made where neither nvcc nor a plugin is (ops/gpu_plan.c). So it is C that is C++ as well. */
#ifndef NDP_OPS_CUDA_CUDA_SCRATCH_H
#define NDP_OPS_CUDA_CUDA_SCRATCH_H

#include "ops/delta_rule.h"
#include "ops/newton_schulz.h"
#include "ops/shape.h"

/* The ops whose kernels need any: ndp_scratch_<op>. */
#define NDP_CUDA_SCRATCH_OPS(X)                                                                                        \
    X(embedding_dw)                                                                                                    \
    X(linear)                                                                                                          \
    X(linear_dx)                                                                                                       \
    X(linear_dw)                                                                                                       \
    X(linear_db)                                                                                                       \
    X(layernorm_dw)                                                                                                    \
    X(rmsnorm_dw)                                                                                                      \
    X(dora_dm)                                                                                                         \
    X(causal_conv_dw)                                                                                                  \
    X(square_sum)                                                                                                      \
    X(newton_schulz) X(xent) X(xent_logits) X(xent_grad) X(attention) X(attention_bwd) X(attention_dsink)              \
        X(route_exchange) X(conv_silu_dw) X(delta_decay_dlog) X(delta_decay_ddt) X(delta_rule) X(delta_rule_bwd)        \
            X(delta_map) X(delta_map_back) X(delta_states)

/* NDP_LANES: neighbouring columns that a thread moves at once. */
enum { NDP_WARP = 32, NDP_LANES = 8, NDP_MAX_THREADS = 1024 };

static inline int64_t ndp_ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
/* Parts of scratch memory begin at multiples of it. */
static inline size_t ndp_scratch_round(size_t bytes) { return (bytes + 255) / 256 * 256; }
static inline size_t ndp_scratch_larger(size_t a, size_t b) { return a > b ? a : b; }

/* ---- products: the library's workspace, then the sums of a split product ---- */

/* Enough for partial sums of 16 parts of k, and no more than any algorithm needs. */
static inline size_t ndp_cuda_workspace(const ndp_view *to) {
    const size_t most = (size_t)32 << 20, parts = (size_t)(to->rows * to->cols) * sizeof(float) * 16;
    return parts < most ? ndp_scratch_round(parts) : most;
}

/* Of a product whose result is `to`; grows with its shape. */
static inline size_t ndp_cuda_product_scratch(const ndp_view *to, const ndp_exec *exec) {
    bool narrow = ndp_split_place(exec) && to->dtype == NDP_BF16;
    size_t sums = narrow ? (size_t)(to->rows * to->cols) * sizeof(float) : 0;
    return to->rows ? ndp_cuda_workspace(to) + sums : 0;
}

/* Of a product of fp32 and bf16, besides: its sums where the result is bf16, and the fp32 operand as three of bf16,
 * whose rows begin aligned. */
enum { NDP_F32_PARTS = 3 };
static inline size_t ndp_mixed_sums(const ndp_view *to) {
    return to->dtype == NDP_BF16 ? ndp_scratch_round((size_t)(to->rows * to->cols) * sizeof(float)) : 0;
}
static inline int64_t ndp_parts_stride(const ndp_view *wide) { return ndp_ceil_div(wide->cols, NDP_LANES) * NDP_LANES; }
static inline size_t ndp_cuda_mixed_scratch(const ndp_view *a, const ndp_view *b, const ndp_view *to) {
    const ndp_view *wide = a->dtype == NDP_F32 ? a : b;
    size_t parts = NDP_F32_PARTS * (size_t)(wide->rows * ndp_parts_stride(wide)) * 2;
    return a->dtype == b->dtype || !to->rows ? 0 : ndp_mixed_sums(to) + parts;
}

static inline size_t ndp_scratch_linear(const ndp_op_call *c) { return ndp_cuda_product_scratch(&c->out[0], c->exec); }
static inline size_t ndp_scratch_linear_dx(const ndp_op_call *c) {
    return ndp_scratch_linear(c) + ndp_cuda_mixed_scratch(&c->in[0], &c->in[1], &c->out[0]);
}
static inline size_t ndp_scratch_linear_dw(const ndp_op_call *c) { return ndp_scratch_linear_dx(c); }

/* ---- sums over rows (cuda_columns.cuh) ---- */

/* Parts for a sum of this many elements. At least two, to split sums at. */
static inline int ndp_parts_of(int64_t rows, int64_t elements) {
    enum { BLOCKS = 1024, BLOCK_COLUMNS = 256, LEAST_ROWS = 32 };
    int64_t most = ndp_ceil_div(rows, LEAST_ROWS), wanted = BLOCKS / ndp_ceil_div(elements, BLOCK_COLUMNS);
    int64_t parts = most < wanted ? most : wanted;
    return parts < 2 ? 2 : (int)parts;
}

/* The sums of the parts. */
static inline ndp_view ndp_columns_parts(int64_t rows, const ndp_view *out) {
    int64_t ld = ndp_ceil_div(out->cols, NDP_LANES) * NDP_LANES;
    ndp_view parts = {NULL, NDP_F32, ndp_parts_of(rows, out->rows * out->cols) * out->rows, out->cols, ld};
    return parts;
}

static inline size_t ndp_columns_scratch(int64_t rows, const ndp_view *out) {
    ndp_view parts = ndp_columns_parts(rows, out);
    return (size_t)(parts.rows * parts.ld) * sizeof(float);
}

static inline size_t ndp_scratch_linear_db(const ndp_op_call *c) {
    return ndp_columns_scratch(c->in[0].rows, &c->out[0]);
}
static inline size_t ndp_scratch_layernorm_dw(const ndp_op_call *c) { return ndp_scratch_linear_db(c); }
static inline size_t ndp_scratch_causal_conv_dw(const ndp_op_call *c) { return ndp_scratch_linear_db(c); }
static inline size_t ndp_scratch_conv_silu_dw(const ndp_op_call *c) { return ndp_scratch_linear_db(c); }
static inline size_t ndp_scratch_delta_decay_dlog(const ndp_op_call *c) { return ndp_scratch_linear_db(c); }
static inline size_t ndp_scratch_delta_decay_ddt(const ndp_op_call *c) { return ndp_scratch_linear_db(c); }
static inline size_t ndp_scratch_attention_dsink(const ndp_op_call *c) { return ndp_scratch_linear_db(c); }
static inline size_t ndp_scratch_dora_dm(const ndp_op_call *c) { return ndp_scratch_linear_db(c); }
static inline size_t ndp_scratch_rmsnorm_dw(const ndp_op_call *c) {
    return ndp_columns_scratch(c->in[2].rows * c->in[2].cols, &c->out[0]);
}

/* ---- others ---- */

static inline size_t ndp_scratch_embedding_dw(const ndp_op_call *c) { return (size_t)c->in[0].rows * 3 * sizeof(int); }

static inline size_t ndp_scratch_route_exchange(const ndp_op_call *c) {
    return (size_t)c->attr->ranks * (size_t)c->attr->ranks * sizeof(int);
}

static inline size_t ndp_scratch_square_sum(const ndp_op_call *c) {
    return (size_t)c->in[1].rows * (NDP_SQUARE_PARTS + 1) * sizeof(double);
}

enum { NDP_NEWTON_SCHULZ_PARTS = 256 };
static inline size_t ndp_newton_schulz_bytes(int64_t n) { return ndp_scratch_round((size_t)n * sizeof(float)); }
/* Without that of its products. */
static inline size_t ndp_newton_schulz_own(const ndp_view *x) {
    int64_t small = ndp_newton_schulz_smaller(x);
    return ndp_newton_schulz_bytes(x->rows * x->cols) + 2 * ndp_newton_schulz_bytes(small * small) +
           NDP_NEWTON_SCHULZ_PARTS * sizeof(double);
}
static inline size_t ndp_scratch_newton_schulz(const ndp_op_call *c) {
    const ndp_view *x = &c->in[0]; /* its products are not larger */
    return ndp_newton_schulz_own(x) + ndp_cuda_product_scratch(x, c->exec);
}

/* ---- the delta rule (cuda_delta_rule.cu): a block of threads has a value head, in the backward a key head ---- */

/* Rows of a chunk, at most; with split sums fewer. */
static inline int64_t ndp_delta_chunk_rows(const ndp_exec *exec) {
    return exec && ndp_split_place(exec) ? 8 * (int64_t)ndp_split_place(exec) : (int64_t)NDP_DELTA_CHUNK;
}
/* Floats of a block's buffers: `of_q` times the rows of a chunk with D columns, and so on. */
static inline int64_t ndp_delta_buffers(const ndp_op_attr *a, int64_t of_q, int64_t of_v, int64_t squares) {
    return NDP_DELTA_CHUNK * (of_q * a->head_dim + of_v * ndp_v_dim(a) + squares * NDP_DELTA_CHUNK);
}
static inline int64_t ndp_delta_state_floats(const ndp_op_attr *a) { return (int64_t)a->head_dim * ndp_v_dim(a); }
static inline int64_t ndp_delta_forward_floats(const ndp_op_attr *a) {
    return ndp_delta_buffers(a, 2, 2, 5) + ndp_delta_state_floats(a);
}
/* Of a value head in the backward: the gradient of the state, the states before chunks and pieces, and U. */
static inline int64_t ndp_delta_kept_floats(const ndp_op_attr *a, int64_t rows, int64_t chunk) {
    int64_t pieces = a->ranks > 0 ? a->parts : 1;
    return (1 + pieces + ndp_ceil_div(rows, chunk)) * ndp_delta_state_floats(a) + rows * ndp_v_dim(a);
}
/* And where chunks begin. */
static inline int64_t ndp_delta_backward_floats(const ndp_op_attr *a, int64_t rows, int64_t chunk) {
    return ndp_delta_buffers(a, 5, 3, 9) + ndp_delta_group(a) * ndp_delta_kept_floats(a, rows, chunk) + rows;
}
static inline size_t ndp_scratch_delta_rule(const ndp_op_call *c) {
    return (size_t)(c->attr->heads * ndp_delta_forward_floats(c->attr)) * sizeof(float);
}
static inline size_t ndp_scratch_delta_rule_bwd(const ndp_op_call *c) {
    int64_t floats = ndp_delta_backward_floats(c->attr, c->in[1].rows, ndp_delta_chunk_rows(c->exec));
    return (size_t)(c->attr->kv_heads * floats) * sizeof(float);
}

/* Of maps of pieces: a block has a value head. States have E + D columns; back, E. */
static inline int64_t ndp_delta_map_floats(const ndp_op_attr *a, int64_t e) {
    return NDP_DELTA_CHUNK * (2 * (int64_t)a->head_dim + 3 * e + 5 * NDP_DELTA_CHUNK) + a->head_dim * e;
}
static inline size_t ndp_scratch_delta_map(const ndp_op_call *c) {
    return (size_t)(c->attr->heads * ndp_delta_map_floats(c->attr, ndp_v_dim(c->attr) + c->attr->head_dim)) *
           sizeof(float);
}
static inline size_t ndp_scratch_delta_map_back(const ndp_op_call *c) {
    return (size_t)(c->attr->heads * ndp_delta_map_floats(c->attr, ndp_v_dim(c->attr))) * sizeof(float);
}
/* Of each state that is made, itself and the one before. */
static inline size_t ndp_scratch_delta_states(const ndp_op_call *c) {
    int64_t states = (c->attr->ranks > 0 ? c->attr->parts : 1) * (int64_t)c->attr->heads;
    return (size_t)(2 * states * ndp_delta_state_floats(c->attr)) * sizeof(float);
}

/* ---- xent: logits of a chunk of rows, then its products ---- */

/* Stride of a chunk's logits: rows begin aligned. */
static inline int64_t ndp_xent_stride(const ndp_op_call *c) { return (c->in[1].rows + 7) / 8 * 8; }

/* As many rows as 1 GiB of logits has, within limits: each chunk reads w twice and adds to dw, which outweighs the
 * products of a few hundred rows. Chunks are of nearly equal size. */
static inline int64_t ndp_cuda_xent_rows(const ndp_op_call *c) {
    const int64_t least = 512, most = 2048, even = 128, rows = c->in[0].rows;
    int64_t fit = ((int64_t)1 << 30) / (ndp_xent_stride(c) * (int64_t)sizeof(float)) / even * even;
    fit = fit < least ? least : fit > most ? most : fit;
    if (rows <= fit)
        return rows;
    return ndp_ceil_div(ndp_ceil_div(rows, ndp_ceil_div(rows, fit)), even) * even;
}

static inline size_t ndp_xent_logits_bytes(const ndp_op_call *c) {
    return ndp_scratch_round((size_t)(ndp_cuda_xent_rows(c) * ndp_xent_stride(c)) * sizeof(float));
}

static inline size_t ndp_xent_gradients_scratch(const ndp_op_call *c, const ndp_view *dx) {
    return ndp_scratch_larger(ndp_cuda_product_scratch(dx, c->exec), ndp_cuda_product_scratch(&c->out[2], c->exec));
}

static inline size_t ndp_scratch_xent(const ndp_op_call *c) {
    int64_t rows = ndp_cuda_xent_rows(c);
    ndp_view logits = {NULL, NDP_F32, rows, c->in[1].rows, ndp_xent_stride(c)}, dx = c->out[1];
    dx.rows = dx.rows ? rows : 0;
    return ndp_xent_logits_bytes(c) +
           ndp_scratch_larger(ndp_cuda_product_scratch(&logits, c->exec), ndp_xent_gradients_scratch(c, &dx));
}
static inline size_t ndp_scratch_xent_logits(const ndp_op_call *c) { return ndp_scratch_linear(c); }
static inline size_t ndp_scratch_xent_grad(const ndp_op_call *c) { return ndp_xent_gradients_scratch(c, &c->out[1]); }

/* ---- attention: lists of tiles, and of the backward delta and a rounded do ---- */

typedef struct ndp_att_tile {
    int low_min, low_max, pos_min, pos_max; /* queries see low .. pos, a key is at low = pos */
} ndp_att_tile;

/* Rows of tiles that a block owns, and walks over (cuda_attention.cuh); a backward in bf16 of more than ATT_LONG
 * columns has short steps where a block has too little shared memory. */
enum { NDP_ATT_F32_ROWS = 64, NDP_ATT_F32_COLS = 128, NDP_ATT_F32_STEP = 16, NDP_ATT_OWN = 64, NDP_ATT_PAD = 8 };
enum { NDP_ATT_SHORT_STEP = 16, NDP_ATT_LONG = 128 };
#define NDP_ATT_BACKWARD_STEP(d) ((d) <= 64 ? 64 : 32)
/* Shared memory of a block: two tiles of its own, and two that it walks over in each of two places, in bf16. */
#define NDP_ATT_BACKWARD_BYTES(d, step) ((size_t)(2 * NDP_ATT_OWN + 4 * (step)) * (size_t)((d) + NDP_ATT_PAD) * 2)

/* What a block of any GPU can have: compute capability 8.6, 8.9 and 12.0 have least. With it the tiles that are walked
 * over are shortest; scratch memory is that of any GPU, since plans are made without one. */
enum { NDP_ATT_LEAST_SHARED = 99 << 10 };

/* The smallest of the compiled head dimensions that holds `dim`; 0: none does. */
static inline int ndp_att_padded(int dim) {
    return dim <= 32    ? 32
           : dim <= 64  ? 64
           : dim <= 96  ? 96
           : dim <= 128 ? 128
           : dim <= 192 ? 192
           : dim <= 256 ? 256
                        : 0;
}

/* Columns that kernels have room for in a head: of q and k, or of v and o where these have more. */
static inline int ndp_att_dim(const ndp_op_call *c) {
    int v = ndp_v_dim(c->attr);
    return c->attr->head_dim > v ? c->attr->head_dim : v;
}
static inline int64_t ndp_att_query_rows(const ndp_op_call *c, const ndp_view *q) {
    return q->rows * (c->attr->heads / c->attr->kv_heads);
}

static inline int ndp_att_own_rows(const ndp_op_call *c, const ndp_view *q, const ndp_view *k) {
    int64_t rows = ndp_att_query_rows(c, q), most = rows > k->rows ? rows : k->rows;
    if (q->dtype != NDP_F32)
        return NDP_ATT_OWN;
    return ndp_att_dim(c) > NDP_ATT_F32_COLS || most <= 32 ? 32 : NDP_ATT_F32_ROWS;
}

/* At most; on a GPU whose blocks can have `shared` bytes of shared memory. */
static inline int ndp_att_bf16_step(int dim, bool backward, size_t shared) {
    int d = ndp_att_padded(dim), step = NDP_ATT_BACKWARD_STEP(d);
    if (!backward)
        return d <= 128 ? 64 : 32;
    return d > NDP_ATT_LONG && NDP_ATT_BACKWARD_BYTES(d, step) > shared ? (int)NDP_ATT_SHORT_STEP : step;
}

static inline int ndp_att_step_rows(const ndp_op_call *c, const ndp_view *q, bool backward, size_t shared) {
    int place = ndp_split_place(c->exec), step;
    step = q->dtype == NDP_F32 ? (int)NDP_ATT_F32_STEP : ndp_att_bf16_step(ndp_att_dim(c), backward, shared);
    if (place)
        step = step * place / (NDP_SPLITS + 1) > 1 ? step * place / (NDP_SPLITS + 1) : 1;
    return step;
}

static inline bool ndp_att_rounds(const ndp_view *q, const ndp_view *d_o) {
    return q->dtype == NDP_BF16 && d_o->dtype != NDP_BF16;
}

/* What the scratch memory of a call holds, by byte offset. Lists of tiles: owned keys and queries, then those walked
 * over. */
typedef struct ndp_att_layout {
    size_t tiles[4], delta, d_o, bytes;
    int n[4];
} ndp_att_layout;

static inline size_t ndp_att_part(size_t *bytes, int64_t n, size_t size) {
    size_t at = *bytes;
    *bytes = ndp_scratch_round(at + (size_t)n * size);
    return at;
}

/* `d_o`: of a backward; NULL: a forward. */
static inline ndp_att_layout ndp_att_lay_out(const ndp_op_call *c, const ndp_view *q, const ndp_view *k,
                                             const ndp_view *d_o, size_t shared) {
    ndp_att_layout l = {{0}, 0, 0, 0, {0}};
    int rows[2] = {ndp_att_own_rows(c, q, k), ndp_att_step_rows(c, q, d_o != NULL, shared)};
    for (int i = 0; i < 4; i++) {
        l.n[i] = (int)ndp_ceil_div(i % 2 ? ndp_att_query_rows(c, q) : k->rows, rows[i / 2]);
        l.tiles[i] = ndp_att_part(&l.bytes, l.n[i], sizeof(ndp_att_tile));
    }
    if (d_o) {
        l.delta = ndp_att_part(&l.bytes, q->rows * c->attr->heads, sizeof(float));
        l.d_o = ndp_att_part(&l.bytes, ndp_att_rounds(q, d_o) ? d_o->rows * d_o->cols : 0, 2); /* bf16 */
    }
    return l;
}

static inline size_t ndp_scratch_attention(const ndp_op_call *c) {
    return ndp_att_lay_out(c, &c->in[0], &c->in[1], NULL, NDP_ATT_LEAST_SHARED).bytes;
}
static inline size_t ndp_scratch_attention_bwd(const ndp_op_call *c) {
    return ndp_att_lay_out(c, &c->in[1], &c->in[2], &c->in[0], NDP_ATT_LEAST_SHARED).bytes;
}

#endif
