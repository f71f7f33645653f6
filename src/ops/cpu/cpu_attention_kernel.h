/* The tasks of attention (see cpu_attention_task.h), compiled once per instruction set by the cpu_attention_<isa>.c
 * files.
 *
 * Scores are kept as [keys][rows], rows in lanes: maximum, sum and mask need no horizontal work, and every one of the
 * seven products is the same kernel, block_product. D below is dim_pad. */
#ifndef NDP_OPS_CPU_CPU_ATTENTION_KERNEL_H
#define NDP_OPS_CPU_CPU_ATTENTION_KERNEL_H

#include "ops/cpu/cpu_attention_block.h"
#include "ops/cpu/cpu_attention_cap.h"
#include "ops/cpu/cpu_block_product.h"

/* --- packing --- */

/* Keys or values of a block as [KEYS][D], the rest of the buffer zero. */
static void load_keys(const ndp_att *a, const ndp_view *v, ndp_att_cols of, int kv, int64_t block, float *out) {
    int64_t first = ndp_att_key_first(a, block), n = ndp_att_key_count(a, block);
    for (int64_t i = 0; i < n; i++)
        load_row(v, first + i, (int64_t)kv * of.n, out + i * a->dim_pad, of.n, of.pad);
    zero(out + n * a->dim_pad, (KEYS + NDP_ATT_TILE - n) * a->dim_pad);
}

/* --- row blocks --- */

typedef struct float_block {
    row_block rows;
    float *q_t;                  /* [D][ROWS], scaled so that scores are powers of 2 */
    float *o;                    /* forward: [ROWS][D] */
    float *q, *d_o, *d_o_t, *dq; /* backward */
} float_block;

/* The block's rows of a [T, H dim] tensor as [ROWS][D]; rows that fill up a vector are 0. */
static void load_block(const ndp_att *a, const row_block *b, const ndp_view *v, ndp_att_cols of, float *out) {
    for (int64_t i = 0; i < b->n; i++)
        load_row(v, b->token[i], b->head[i] * of.n, out + i * a->dim_pad, of.n, of.pad);
    zero(out + b->n * a->dim_pad, (b->vecs * LANES - b->n) * a->dim_pad);
}

/* s [keys][ROWS] = rows of x (keys) times y [D][ROWS]. */
static void scores(const ndp_att *a, const row_block *b, key_range r, ndp_att_cols of, const float *x, const float *y,
                   float *s) {
    factor keys = {x + r.from * a->dim_pad, a->dim_pad, 1};
    block_product(r.to - r.from, b->vecs, of.n, keys, y, ROWS, s, ROWS, false);
}

/* out [ROWS][D] += s^T times rows of x (keys). */
static void weighted_keys(const ndp_att *a, const row_block *b, key_range r, ndp_att_cols of, const float *s,
                          const float *x, float *out) {
    factor weights = {s, 1, ROWS};
    block_product(b->n, of.pad / LANES, r.to - r.from, weights, x + r.from * a->dim_pad, a->dim_pad, out, a->dim_pad,
                  true);
}

/* out [keys][D] += s times rows of x. */
static void weighted_rows(const ndp_att *a, const row_block *b, key_range r, ndp_att_cols of, const float *s,
                          const float *x, float *out) {
    factor weights = {s, ROWS, 1};
    block_product(r.to - r.from, of.pad / LANES, b->n, weights, x, a->dim_pad, out + r.from * a->dim_pad, a->dim_pad,
                  true);
}

/* --- forward --- */

/* Scores become weights; earlier sums and outputs are scaled to the new maximum. */
static void online_softmax(const ndp_att *a, float_block *b, int64_t keys, float *s) {
    float rescale[ROWS];
    row_block *rows = &b->rows;
    for (int64_t j = 0; j < rows->vecs * LANES; j += LANES) {
        vf old = vec_load(rows->shift + j), max = column_max(s + j, keys, ROWS, old), sum = vec_set(0);
        for (int64_t k = 0; k < keys; k++) {
            vf p = vec_exp2(vec_load(s + k * ROWS + j) - max);
            vec_store(s + k * ROWS + j, p);
            sum += p;
        }
        vf by = vec_exp2(old - max);
        vec_store(rescale + j, by);
        vec_store(rows->shift + j, max);
        vec_store(rows->sum + j, vec_load(rows->sum + j) * by + sum);
    }
    for (int64_t i = 0; i < rows->n; i++) {
        if (rescale[i] == 1.0f)
            continue;
        for (float *o = b->o + i * a->dim_pad, *end = o + a->of_v.pad; o < end; o += LANES)
            vec_store(o, vec_load(o) * rescale[i]);
    }
}

static void forward_begin(const ndp_att *a, float_block *b, float *q) {
    load_block(a, &b->rows, &a->q, a->of_q, q);
    transpose(q, a->dim_pad, b->rows.vecs * LANES, a->of_q.pad, score_unit(a), b->q_t, ROWS);
    zero(b->o, ndp_att_row_floats(a));
    forward_stats_begin(a, &b->rows);
}

static void forward_keys(const ndp_att *a, float_block *b, int64_t j, const float *k, const float *v, float *s) {
    key_range r = seen_keys(a, &b->rows, j);
    if (r.from == r.to)
        return;
    scores(a, &b->rows, r, a->of_q, k, b->q_t, s);
    if (a->cap > 0)
        cap_scores(r.to - r.from, b->rows.vecs * LANES, ROWS, a->cap, 1, s);
    if (!r.all)
        hide(&b->rows, r, 0, b->rows.vecs * LANES, s, ROWS);
    online_softmax(a, b, r.to - r.from, s);
    weighted_keys(a, &b->rows, r, a->of_v, s, v, b->o);
}

static void forward(const ndp_att *a, int kv, int64_t task, void *work) {
    float_block blocks[NDP_ATT_TASK_BLOCKS];
    float *k = take(&work, ndp_att_key_floats(a)), *v = take(&work, ndp_att_key_floats(a)),
          *s = take(&work, NDP_ATT_SCORE_FLOATS);
    int n = task_blocks(a, task);
    for (int i = 0; i < n; i++) {
        row_block_init(a, &blocks[i].rows, kv, ndp_att_task_first(a, task) + (int64_t)i * ROWS, ROWS);
        blocks[i].q_t = take(&work, ndp_att_row_floats(a));
        blocks[i].o = take(&work, ndp_att_row_floats(a));
        forward_begin(a, &blocks[i], k);
    }
    for (int64_t j = 0; j < a->key_blocks; j++) {
        if (!ndp_att_touches(a->sight[task], a->spans[j]))
            continue;
        load_keys(a, &a->k, a->of_q, kv, j, k);
        load_keys(a, &a->v, a->of_v, kv, j, v);
        for (int i = 0; i < n; i++)
            forward_keys(a, &blocks[i], j, k, v, s);
    }
    for (int i = 0; i < n; i++)
        for (int64_t row = 0; row < blocks[i].rows.n; row++)
            store_output(a, &blocks[i].rows, row, blocks[i].o + row * a->dim_pad);
}

/* --- backward --- */

static void backward_begin(const ndp_att *a, float_block *b, float *work) {
    load_block(a, &b->rows, &a->q, a->of_q, b->q);
    load_block(a, &b->rows, &a->d_o, a->of_v, b->d_o);
    transpose(b->q, a->dim_pad, b->rows.vecs * LANES, a->of_q.pad, score_unit(a), b->q_t, ROWS);
    transpose(b->d_o, a->dim_pad, b->rows.vecs * LANES, a->of_v.pad, 1, b->d_o_t, ROWS);
    zero(b->dq, ndp_att_row_floats(a));
    backward_stats_begin(a, &b->rows, work);
}

/* Scores become weights p, their gradients dp become those of the scores (less the scale). `capped` is a constant where
 * it is inlined. */
INLINE void softmax_backward_by(const ndp_att *a, const row_block *b, int64_t keys, float *s, float *dp, bool capped) {
    for (int64_t j = 0; j < b->vecs * LANES; j += LANES) {
        vf lse = vec_load(b->shift + j), delta = vec_load(b->sum + j);
        for (int64_t k = 0; k < keys; k++) {
            vf x = vec_load(s + k * ROWS + j), p = vec_exp2(x - lse);
            vf ds = p * (vec_load(dp + k * ROWS + j) - delta);
            if (capped)
                ds *= cap_slope(a->cap, x);
            vec_store(s + k * ROWS + j, p);
            vec_store(dp + k * ROWS + j, ds);
        }
    }
}

static void softmax_backward(const ndp_att *a, const row_block *b, int64_t keys, float *s, float *dp) {
    if (a->cap > 0)
        softmax_backward_by(a, b, keys, s, dp, true);
    else
        softmax_backward_by(a, b, keys, s, dp, false);
    zero(s + keys * ROWS, NDP_ATT_TILE * ROWS); /* rows that fill up a tile add nothing to dk, dv */
    zero(dp + keys * ROWS, NDP_ATT_TILE * ROWS);
}

typedef struct key_buffers {
    float *k, *v, *s, *dp, *dk, *dv;
} key_buffers;

static void backward_block(const ndp_att *a, float_block *b, int64_t j, const key_buffers *w) {
    const row_block *rows = &b->rows;
    key_range r = seen_keys(a, rows, j);
    if (r.from == r.to)
        return;
    scores(a, rows, r, a->of_q, w->k, b->q_t, w->s);
    if (a->cap > 0)
        cap_scores(r.to - r.from, rows->vecs * LANES, ROWS, a->cap, 1, w->s);
    if (!r.all)
        hide(rows, r, 0, rows->vecs * LANES, w->s, ROWS);
    scores(a, rows, r, a->of_v, w->v, b->d_o_t, w->dp);
    softmax_backward(a, rows, r.to - r.from, w->s, w->dp);
    if (a->dv.data)
        weighted_rows(a, rows, r, a->of_v, w->s, b->d_o, w->dv);
    if (a->dk.data)
        weighted_rows(a, rows, r, a->of_q, w->dp, b->q, w->dk);
    if (a->dq.data)
        weighted_keys(a, rows, r, a->of_q, w->dp, w->k, b->dq);
}

static void backward_keys(const ndp_att *a, float_block *blocks, int n, int kv, int64_t task, int64_t j,
                          const key_buffers *w) {
    load_keys(a, &a->k, a->of_q, kv, j, w->k);
    load_keys(a, &a->v, a->of_v, kv, j, w->v);
    zero(w->dk, ndp_att_key_floats(a));
    zero(w->dv, ndp_att_key_floats(a));
    for (int i = 0; i < n; i++)
        backward_block(a, &blocks[i], j, w);
    add_in_turn(a, kv, task, j, w->dk, w->dv);
}

static void backward(const ndp_att *a, int kv, int64_t task, void *work) {
    float_block blocks[NDP_ATT_TASK_BLOCKS];
    key_buffers w = {.s = take(&work, NDP_ATT_SCORE_FLOATS),
                     .dp = take(&work, NDP_ATT_SCORE_FLOATS),
                     .k = take(&work, ndp_att_key_floats(a)),
                     .v = take(&work, ndp_att_key_floats(a)),
                     .dk = take(&work, ndp_att_key_floats(a)),
                     .dv = take(&work, ndp_att_key_floats(a))};
    int n = task_blocks(a, task);
    for (int i = 0; i < n; i++) {
        float_block *b = &blocks[i];
        row_block_init(a, &b->rows, kv, ndp_att_task_first(a, task) + (int64_t)i * ROWS, ROWS);
        float **buffers[] = {&b->q, &b->q_t, &b->d_o, &b->d_o_t, &b->dq};
        for (int p = 0; p < NDP_COUNT(buffers); p++)
            *buffers[p] = take(&work, ndp_att_row_floats(a));
        backward_begin(a, b, w.k);
    }
    for (int64_t j = 0; j < a->key_blocks; j++)
        if (ndp_att_touches(a->sight[task], a->spans[j]))
            backward_keys(a, blocks, n, kv, task, j, &w);
    for (int i = 0; i < n && a->dq.data; i++)
        for (int64_t row = 0; row < blocks[i].rows.n; row++)
            store_dq(a, &blocks[i].rows, row, blocks[i].dq + row * a->dim_pad);
}

static size_t forward_bytes(const ndp_att *a) {
    return sizeof(float) *
           (size_t)(a->task_rows / ROWS * 2 * ndp_att_row_floats(a) + 2 * ndp_att_key_floats(a) + NDP_ATT_SCORE_FLOATS);
}

static size_t backward_bytes(const ndp_att *a) {
    return sizeof(float) * (size_t)(a->task_rows / ROWS * 5 * ndp_att_row_floats(a) + 4 * ndp_att_key_floats(a) +
                                    2 * NDP_ATT_SCORE_FLOATS);
}

const ndp_att_kernels KERNELS = {.forward = {.task = forward, .work_bytes = forward_bytes},
                                 .backward = {.task = backward, .work_bytes = backward_bytes},
                                 .store = store_whole_row,
                                 .dim_unit = NDP_ATT_LANES};

#endif
