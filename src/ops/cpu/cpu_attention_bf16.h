/* The tasks of attention in bf16 (see cpu_attention_task.h), compiled once per instruction set by the files that
 * include it: these bring products_begin, product and products_end (see cpu_attention_pairs.h), and the name KERNELS.
 *
 * Scores are again [keys][rows], rows in lanes, so weights become either operand without moving between lanes:
 *
 *   s^T  [keys][rows] = K [keys][D]        x Q^T, paired          o^T  [D][rows]  += V^T [D][keys]       x p^T, paired
 *   dp^T [keys][rows] = V [keys][D]        x dO^T, paired         dv   [keys][D]  += p^T [keys][rows]    x dO, paired
 *   dq^T [D][rows]   += K^T [D][keys]      x ds^T, paired         dk   [keys][D]  += ds^T [keys][rows]   x Q, paired
 *
 * p and ds are rounded to bf16; maxima, sums, lse and delta are fp32, and sums are of the weights before rounding.
 * Rows go in strips of 32, so that scores and operands of a strip stay in the first cache. D below is dim_pad, a
 * multiple of 32, and so are the sizes of all products. Tile products and vector code alternate: interleaving them was
 * measured to be slower. */
#ifndef NDP_OPS_CPU_CPU_ATTENTION_BF16_H
#define NDP_OPS_CPU_CPU_ATTENTION_BF16_H

#include "ops/cpu/cpu_attention_block.h"
#include "ops/cpu/cpu_attention_cap.h"
#include "ops/cpu/cpu_attention_pairs.h"

/* --- packing --- */

/* As take, n numbers of bf16. */
static bf16 *take_bf16(void **work, int64_t n) { return (bf16 *)take(work, n / 2); }

/* A row of a head, filled up with zeros. */
static void load_bf16(const ndp_att *a, const ndp_view *v, int n, int64_t row, int64_t col, bf16 *out) {
    const bf16 *from = (const bf16 *)v->data + row * v->ld + col;
    for (int i = 0; i < a->dim_pad; i += DEPTH) {
        __mmask32 there = n - i >= DEPTH ? UINT32_MAX : n > i ? (1u << (n - i)) - 1 : 0;
        _mm512_storeu_si512(out + i, _mm512_maskz_loadu_epi16(there, from + i));
    }
}

/* The block's rows of a [T, H dim] tensor as [rows][D], filled up with zeros. */
static void load_block(const ndp_att *a, const row_block *b, const ndp_view *v, ndp_att_cols of, int64_t rows,
                       bf16 *out) {
    for (int64_t i = 0; i < b->n; i++)
        load_bf16(a, v, of.n, b->token[i], b->head[i] * of.n, out + i * a->dim_pad);
    memset(out + b->n * a->dim_pad, 0, (size_t)((rows - b->n) * a->dim_pad) * sizeof *out);
}

/* Keys or values of a block as [KEYS][D]; those that no row sees are 0, whatever they are: a weight of 0 does not hide
 * NaN. */
static void load_keys(const ndp_att *a, const ndp_view *v, ndp_att_cols of, int kv, int64_t block, bf16 *out) {
    int64_t first = ndp_att_key_first(a, block), n = ndp_att_key_count(a, block);
    for (int64_t i = 0; i < KEYS; i++, out += a->dim_pad) {
        bool seen = i < n && a->k_pos[first + i] >= a->any.low_min && a->k_pos[first + i] <= a->any.pos_max;
        if (seen)
            load_bf16(a, v, of.n, first + i, (int64_t)kv * of.n, out);
        else
            memset(out, 0, (size_t)a->dim_pad * sizeof *out);
    }
}

/* Matrix i of those packed for a key block. */
static bf16 *packed(const ndp_att *a, int kv, int64_t block, int i) {
    return (bf16 *)(a->packed + (size_t)(kv * a->key_blocks + block) * a->packed_bytes) +
           (int64_t)i * KEYS * a->dim_pad;
}

/* --- strips --- */

static int64_t strips(const row_block *b) { return (b->n + STRIP - 1) / STRIP; }

/* The seen keys in whole depths of a product. */
static key_range seen_depths(const ndp_att *a, const row_block *b, int64_t block) {
    key_range r = seen_keys(a, b, block);
    if (r.from == r.to)
        return r;
    r.from = r.from / DEPTH * DEPTH;
    r.to = (r.to + DEPTH - 1) / DEPTH * DEPTH;
    r.all = r.all && r.to <= ndp_att_key_count(a, block);
    return r;
}

/* s [keys][STRIP] = rows of x (keys) times y, a strip's paired columns. */
static void strip_product(const ndp_att *a, key_range r, ndp_att_cols of, const bf16 *x, const bf16 *y, float *s) {
    product(r.to - r.from, STRIP, of.pad, (operand){x + r.from * a->dim_pad, a->dim_pad}, (operand){y, 2 * STRIP}, s,
            STRIP, false);
}

/* The scores of packed keys k, not scaled yet. */
static void scores(const ndp_att *a, key_range r, const bf16 *k, const bf16 *q_t, float *s) {
    strip_product(a, r, a->of_q, k, q_t, s);
    if (a->cap > 0)
        cap_scores(r.to - r.from, STRIP, STRIP, a->cap, score_unit(a), s);
}

/* Hides what a row does not see, and what fills up the keys. */
static void hide_strip(const ndp_att *a, const row_block *b, key_range r, int64_t block, int64_t row, float *s) {
    int64_t n = ndp_att_key_count(a, block);
    key_range real = r;
    real.to = n < r.to ? n : r.to;
    hide(b, real, row, STRIP, s, STRIP);
    for (int64_t i = (real.to - r.from) * STRIP; i < (r.to - r.from) * STRIP; i += LANES)
        vec_store(s + i, vec_set(-INFINITY));
}

/* out_t [D][STRIP] += x [D][KEYS] times the paired weights of the keys. */
static void weighted_keys(key_range r, ndp_att_cols of, const bf16 *x, const bf16 *weights, float *out_t) {
    product(of.pad, STRIP, r.to - r.from, (operand){x + r.from, KEYS}, (operand){weights, 2 * STRIP}, out_t, STRIP,
            true);
}

/* out [keys][D] (+)= weights [keys][ROWS] times x, paired rows. */
static void weighted_rows(const ndp_att *a, const row_block *b, key_range r, ndp_att_cols of, const bf16 *weights,
                          const bf16 *x, float *out, bool add) {
    product(r.to - r.from, of.pad, strips(b) * STRIP, (operand){weights, ROWS}, (operand){x, 2 * a->dim_pad},
            out + r.from * a->dim_pad, a->dim_pad, add);
}

/* --- forward --- */

/* The shift follows the maximum only when it has grown by more than this: the weights stay below 2^8, and o is rarely
 * scaled. */
static const float SLACK = 8;

/* What is subtracted from LANES columns of scores; earlier sums and outputs are scaled when that changes. */
static vf follow_maximum(const ndp_att *a, row_block *b, int64_t row, const float *s, int64_t keys, float *o_t) {
    vf old = vec_load(b->shift + row);
    vf top = vec_max(column_max(s, keys, STRIP, vec_set(-FLT_MAX)) * score_unit(a), old);
    __mmask16 grown = _mm512_cmp_ps_mask((__m512)top, (__m512)(old + SLACK), _CMP_GT_OQ);
    if (!grown)
        return old;
    vf shift = (vf)_mm512_mask_mov_ps((__m512)old, grown, (__m512)top), by = vec_exp2(old - shift);
    vec_store(b->shift + row, shift);
    vec_store(b->sum + row, vec_load(b->sum + row) * by);
    for (int64_t i = 0; i < a->of_v.pad; i++)
        vec_store(o_t + i * STRIP, vec_load(o_t + i * STRIP) * by);
    return shift;
}

/* Scores [keys][STRIP] become paired weights. */
static void online_softmax(const ndp_att *a, row_block *b, int64_t row, const float *s, int64_t keys, bf16 *p,
                           float *o_t) {
    const vf unit = vec_set(score_unit(a));
    for (int64_t j = 0; j < STRIP; j += LANES) {
        vf shift = follow_maximum(a, b, row + j, s + j, keys, o_t + j), sum = vec_set(0);
        for (int64_t k = 0; k < keys; k += 2) {
            vf even = vec_exp2(vec_load(s + k * STRIP + j) * unit - shift);
            vf odd = vec_exp2(vec_load(s + (k + 1) * STRIP + j) * unit - shift);
            store_paired(p + k * STRIP + 2 * j, even, odd);
            sum += even + odd;
        }
        vec_store(b->sum + row + j, vec_load(b->sum + row + j) + sum);
    }
}

enum { FORWARD_K, FORWARD_V_T, FORWARD_PACKED };

static void forward_pack(const ndp_att *a, int kv, int64_t block) {
    bf16 *k = packed(a, kv, block, FORWARD_K), *v_t = packed(a, kv, block, FORWARD_V_T);
    load_keys(a, &a->v, a->of_v, kv, block, k);
    transpose_keys(k, a->dim_pad, v_t);
    load_keys(a, &a->k, a->of_q, kv, block, k);
}

static size_t forward_packed_bytes(const ndp_att *a) {
    return FORWARD_PACKED * sizeof(bf16) * KEYS * (size_t)a->dim_pad;
}

typedef struct forward_buffers {
    bf16 *q_t;   /* [D / 2][STRIP][2] */
    float *o_t;  /* [D][STRIP] */
    float *s;    /* [KEYS][STRIP] */
    bf16 *p;     /* [KEYS / 2][STRIP][2] */
    float *rows; /* [STRIP][D] for packing */
} forward_buffers;

static void forward_keys(const ndp_att *a, row_block *b, int kv, int64_t block, const forward_buffers *w) {
    key_range r = seen_depths(a, b, block);
    if (r.from == r.to)
        return;
    scores(a, r, packed(a, kv, block, FORWARD_K), w->q_t, w->s);
    if (!r.all)
        hide_strip(a, b, r, block, 0, w->s);
    online_softmax(a, b, 0, w->s, r.to - r.from, w->p, w->o_t);
    weighted_keys(r, a->of_v, packed(a, kv, block, FORWARD_V_T), w->p, w->o_t);
}

static void forward_strip(const ndp_att *a, int kv, int64_t task, int64_t first, const forward_buffers *w) {
    row_block b;
    row_block_init(a, &b, kv, first, STRIP);
    forward_stats_begin(a, &b);
    load_block(a, &b, &a->q, a->of_q, STRIP, (bf16 *)w->rows);
    pair_columns((bf16 *)w->rows, STRIP, a->dim_pad, w->q_t);
    zero(w->o_t, STRIP * a->dim_pad);
    for (int64_t j = 0; j < a->key_blocks; j++)
        if (ndp_att_touches(a->sight[task], a->spans[j]))
            forward_keys(a, &b, kv, j, w);
    transpose_strip(w->o_t, a->dim_pad, w->rows);
    for (int64_t i = 0; i < b.n; i++)
        store_output(a, &b, i, w->rows + i * a->dim_pad);
}

static void forward(const ndp_att *a, int kv, int64_t task, void *work) {
    forward_buffers w = {.q_t = take_bf16(&work, STRIP * a->dim_pad),
                         .o_t = take(&work, STRIP * a->dim_pad),
                         .s = take(&work, KEYS * STRIP),
                         .p = take_bf16(&work, KEYS * STRIP),
                         .rows = take(&work, STRIP * a->dim_pad)};
    int64_t first = ndp_att_task_first(a, task);
    products_begin();
    for (int64_t i = first; i < first + a->task_rows && i < a->rows; i += STRIP)
        forward_strip(a, kv, task, i, &w);
    products_end();
}

static size_t forward_bytes(const ndp_att *a) {
    return STRIP * (size_t)a->dim_pad * (2 + 4 + 4) + KEYS * STRIP * (4 + 2);
}

/* --- backward --- */

enum { BACKWARD_K, BACKWARD_V, BACKWARD_K_T, BACKWARD_PACKED };

static void backward_pack(const ndp_att *a, int kv, int64_t block) {
    bf16 *k = packed(a, kv, block, BACKWARD_K);
    load_keys(a, &a->k, a->of_q, kv, block, k);
    load_keys(a, &a->v, a->of_v, kv, block, packed(a, kv, block, BACKWARD_V));
    transpose_keys(k, a->dim_pad, packed(a, kv, block, BACKWARD_K_T));
}

static size_t backward_packed_bytes(const ndp_att *a) {
    return BACKWARD_PACKED * sizeof(bf16) * KEYS * (size_t)a->dim_pad;
}

typedef struct pair_block {
    row_block rows;
    bf16 *q_t, *d_o_t; /* [STRIPS][D / 2][STRIP][2] */
    bf16 *q, *d_o;     /* [ROWS / 2][D][2] */
    float *dq_t;       /* [STRIPS][D][STRIP] */
} pair_block;

typedef struct backward_buffers {
    bf16 *p, *ds;   /* [KEYS][ROWS] */
    bf16 *ds_pairs; /* [KEYS / 2][STRIP][2] */
    float *s, *dp;  /* [DEPTH][STRIP] */
    float *dk, *dv; /* [KEYS][D] */
    float *rows;    /* [ROWS][D] for packing */
} backward_buffers;

static void backward_begin(const ndp_att *a, pair_block *b, float *work) {
    bf16 *rows = (bf16 *)work;
    load_block(a, &b->rows, &a->q, a->of_q, ROWS, rows);
    pair_columns(rows, ROWS, a->dim_pad, b->q_t);
    pair_rows(rows, a->dim_pad, b->q);
    load_block(a, &b->rows, &a->d_o, a->of_v, ROWS, rows);
    pair_columns(rows, ROWS, a->dim_pad, b->d_o_t);
    pair_rows(rows, a->dim_pad, b->d_o);
    zero(b->dq_t, ndp_att_row_floats(a));
    backward_stats_begin(a, &b->rows, work);
}

/* Scores of a strip and DEPTH keys become weights p, their gradients dp those of the scores (less the scale): two keys
 * by 32 rows at a time. `to` is the first key's place in p, ds and ds_pairs; `capped` is a constant where it is
 * inlined.
 */
INLINE void softmax_backward_by(const ndp_att *a, const row_block *b, int64_t row, int64_t to,
                                const backward_buffers *w, bool capped) {
    const vf unit = vec_set(score_unit(a));
    const vf lse[2] = {vec_load(b->shift + row), vec_load(b->shift + row + LANES)};
    const vf delta[2] = {vec_load(b->sum + row), vec_load(b->sum + row + LANES)};
    for (int64_t k = 0; k < DEPTH; k += 2) {
        vf p[2][2], ds[2][2];
        const float *s = w->s + k * STRIP, *dp = w->dp + k * STRIP;
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            vf score = vec_load(s + i * LANES) * unit, x = vec_exp2(score - lse[i % 2]);
            p[i / 2][i % 2] = x;
            ds[i / 2][i % 2] = x * (vec_load(dp + i * LANES) - delta[i % 2]);
            if (capped)
                ds[i / 2][i % 2] *= cap_slope(a->cap, score);
        }
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++) {
            store_halves(w->p + (to + k + i) * ROWS + row, p[i][0], p[i][1]);
            store_halves(w->ds + (to + k + i) * ROWS + row, ds[i][0], ds[i][1]);
            store_paired(w->ds_pairs + (to + k) * STRIP + 2 * i * LANES, ds[0][i], ds[1][i]);
        }
    }
}

static void softmax_backward(const ndp_att *a, const row_block *b, int64_t row, int64_t to, const backward_buffers *w) {
    if (a->cap > 0)
        softmax_backward_by(a, b, row, to, w, true);
    else
        softmax_backward_by(a, b, row, to, w, false);
}

/* p, ds and dq of a strip. */
static void backward_strip(const ndp_att *a, pair_block *b, int64_t row, int kv, int64_t j, key_range r,
                           const backward_buffers *w) {
    int64_t at = row * a->dim_pad;
    for (int64_t k = r.from; k < r.to; k += DEPTH) {
        key_range few = {k, k + DEPTH, r.all, r.pos};
        scores(a, few, packed(a, kv, j, BACKWARD_K), b->q_t + at, w->s);
        if (!r.all)
            hide_strip(a, &b->rows, few, j, row, w->s);
        strip_product(a, few, a->of_v, packed(a, kv, j, BACKWARD_V), b->d_o_t + at, w->dp);
        softmax_backward(a, &b->rows, row, k - r.from, w);
    }
    if (a->dq.data)
        weighted_keys(r, a->of_q, packed(a, kv, j, BACKWARD_K_T), w->ds_pairs, b->dq_t + at);
}

static void clear_sums(const ndp_att *a, const backward_buffers *w) {
    zero(w->dk, KEYS * a->dim_pad);
    zero(w->dv, KEYS * a->dim_pad);
}

/* Adds to dk and dv if `begun`, else sets them. Returns false if there was nothing to do. */
static bool backward_block(const ndp_att *a, pair_block *b, int kv, int64_t j, bool begun, const backward_buffers *w) {
    key_range r = seen_depths(a, &b->rows, j);
    if (r.from == r.to)
        return false;
    for (int64_t i = 0; i < strips(&b->rows); i++)
        backward_strip(a, b, i * STRIP, kv, j, r, w);
    if (!begun && (r.from > 0 || r.to < KEYS))
        clear_sums(a, w);
    if (a->dv.data)
        weighted_rows(a, &b->rows, r, a->of_v, w->p, b->d_o, w->dv, begun);
    if (a->dk.data)
        weighted_rows(a, &b->rows, r, a->of_q, w->ds, b->q, w->dk, begun);
    return true;
}

static void backward_keys(const ndp_att *a, pair_block *blocks, int n, int kv, int64_t task, int64_t j,
                          const backward_buffers *w) {
    bool begun = false;
    for (int i = 0; i < n; i++)
        begun |= backward_block(a, &blocks[i], kv, j, begun, w);
    if (!begun)
        clear_sums(a, w);
    add_in_turn(a, kv, task, j, w->dk, w->dv);
}

static void backward_end(const ndp_att *a, const pair_block *b, float *work) {
    for (int64_t i = 0; i < b->rows.n && a->dq.data; i++) {
        if (i % STRIP == 0)
            transpose_strip(b->dq_t + i * a->dim_pad, a->dim_pad, work);
        store_dq(a, &b->rows, i, work + i % STRIP * a->dim_pad);
    }
}

static void backward(const ndp_att *a, int kv, int64_t task, void *work) {
    pair_block blocks[NDP_ATT_TASK_BLOCKS];
    backward_buffers w = {.p = take_bf16(&work, KEYS * ROWS),
                          .ds = take_bf16(&work, KEYS * ROWS),
                          .ds_pairs = take_bf16(&work, KEYS * STRIP),
                          .s = take(&work, DEPTH * STRIP),
                          .dp = take(&work, DEPTH * STRIP),
                          .dk = take(&work, KEYS * a->dim_pad),
                          .dv = take(&work, KEYS * a->dim_pad),
                          .rows = take(&work, ROWS * a->dim_pad)};
    int n = task_blocks(a, task);
    products_begin();
    for (int i = 0; i < n; i++) {
        pair_block *b = &blocks[i];
        row_block_init(a, &b->rows, kv, ndp_att_task_first(a, task) + (int64_t)i * ROWS, ROWS);
        bf16 **buffers[] = {&b->q_t, &b->d_o_t, &b->q, &b->d_o};
        for (int k = 0; k < NDP_COUNT(buffers); k++)
            *buffers[k] = take_bf16(&work, ROWS * a->dim_pad);
        b->dq_t = take(&work, ROWS * a->dim_pad);
        backward_begin(a, b, w.rows);
    }
    for (int64_t j = 0; j < a->key_blocks; j++)
        if (ndp_att_touches(a->sight[task], a->spans[j]))
            backward_keys(a, blocks, n, kv, task, j, &w);
    for (int i = 0; i < n; i++)
        backward_end(a, &blocks[i], w.rows);
    products_end();
}

static size_t backward_bytes(const ndp_att *a) {
    size_t row = (size_t)a->dim_pad, of_blocks = (size_t)a->task_rows * row * (4 * 2 + 4);
    return of_blocks + KEYS * ROWS * 2 * 2 + KEYS * STRIP * 2 + DEPTH * STRIP * 2 * 4 + KEYS * row * 2 * 4 +
           ROWS * row * 4;
}

const ndp_att_kernels KERNELS = {.forward = {forward_pack, forward, forward_packed_bytes, forward_bytes},
                                 .backward = {backward_pack, backward, backward_packed_bytes, backward_bytes},
                                 .store = store_whole_row,
                                 .dim_unit = DEPTH,
                                 .of_bf16 = true};

#endif
