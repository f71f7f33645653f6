/* The tasks of attention (see attention_task.h), compiled once per instruction set by the attention_<isa>.c files.
 *
 * Scores are kept as [keys][rows], rows in lanes: maximum, sum and mask need no horizontal work, and every one of the
 * seven products is the same kernel, block_product. D below is dim_pad. */
#ifndef NDP_OPS_CPU_ATTENTION_KERNEL_H
#define NDP_OPS_CPU_ATTENTION_KERNEL_H

#include "ops/cpu/attention_task.h"

#include <sched.h>

enum { ROWS = NDP_ATT_ROWS, KEYS = NDP_ATT_KEYS };

/* --- products --- */

typedef struct factor {
    const float *data;
    int64_t row, col; /* strides */
} factor;

/* C [rows x vecs] (+)= A [rows x depth] B [depth x vecs]; rows and vecs are constants where it is inlined. */
INLINE void tile_product(const int rows, const int vecs, int64_t depth, factor a, const float *b, int64_t ldb, float *c,
                         int64_t ldc, bool add) {
    vf acc[8][TILE_VECS];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vecs; j++)
            acc[i][j] = add ? vec_load(c + i * ldc + j * LANES) : vec_set(0);
    for (int64_t k = 0; k < depth; k++) {
        vf x[TILE_VECS];
#pragma GCC unroll 4
        for (int j = 0; j < vecs; j++)
            x[j] = vec_load(b + k * ldb + j * LANES);
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++) {
            vf y = vec_set(a.data[i * a.row + k * a.col]);
#pragma GCC unroll 4
            for (int j = 0; j < vecs; j++)
                acc[i][j] += y * x[j];
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vecs; j++)
            vec_store(c + i * ldc + j * LANES, acc[i][j]);
}

#define COLUMN_OF_TILES(n)                                                                                             \
    for (int64_t i = 0; i < rows; i += TILE_ROWS(n)) {                                                                 \
        factor from = {a.data + i * a.row, a.row, a.col};                                                              \
        tile_product(TILE_ROWS(n), n, depth, from, b, ldb, c + i * ldc, ldc, add);                                     \
    }

/* C [rows x vecs LANES] (+)= A [rows x depth] B [depth x vecs LANES]. Rows are rounded up to the tile: C has room for
 * NDP_ATT_TILE more and A something to read. */
static void block_product(int64_t rows, int64_t vecs, int64_t depth, factor a, const float *b, int64_t ldb, float *c,
                          int64_t ldc, bool add) {
    for (int64_t left = vecs, n; left > 0; left -= n, b += n * LANES, c += n * LANES) {
        int64_t columns = (left + TILE_VECS - 1) / TILE_VECS;
        n = (left + columns - 1) / columns;
        switch (n) {
        case 1:
            COLUMN_OF_TILES(1) break;
        case 2:
            COLUMN_OF_TILES(2) break;
#if TILE_VECS > 2
        case 3:
            COLUMN_OF_TILES(3) break;
        case 4:
            COLUMN_OF_TILES(4) break;
#endif
        default:
            __builtin_unreachable();
        }
    }
}

/* --- packing --- */

INLINE void load_row(const ndp_view *v, int64_t row, int64_t col, float *out, int n, int n_pad) {
    int64_t at = row * v->ld + col;
    int i = 0;
    if (v->dtype == NDP_F32)
        for (; i + LANES <= n; i += LANES)
            vec_store(out + i, vec_load((const float *)v->data + at + i));
    else if (v->dtype == NDP_BF16)
        for (; i + LANES <= n; i += LANES)
            vec_store(out + i, vec_load_bf16((const uint16_t *)v->data + at + i));
    for (; i < n; i++)
        out[i] = (float)ndp_view_get(v, row, col + i);
    for (; i < n_pad; i++)
        out[i] = 0;
}

/* The row times `by`. */
INLINE void store_row(const ndp_view *v, int64_t row, int64_t col, const float *x, float by, int n) {
    int64_t at = row * v->ld + col;
    int i = 0;
    if (v->dtype == NDP_F32)
        for (; i + LANES <= n; i += LANES)
            vec_store((float *)v->data + at + i, vec_load(x + i) * by);
    else if (v->dtype == NDP_BF16)
        for (; i + LANES <= n; i += LANES)
            vec_store_bf16((uint16_t *)v->data + at + i, vec_load(x + i) * by);
    for (; i < n; i++)
        ndp_view_set(v, row, col + i, (double)(by * x[i]));
}

static void zero(float *x, int64_t n) { memset(x, 0, (size_t)n * sizeof(float)); }

/* Keys or values of a block as [KEYS][D], the rest of the buffer zero. */
static void load_keys(const ndp_att *a, const ndp_view *v, int kv, int64_t block, float *out) {
    int64_t first = block * KEYS, n = a->keys - first < KEYS ? a->keys - first : KEYS;
    for (int64_t i = 0; i < n; i++)
        load_row(v, first + i, (int64_t)kv * a->dim, out + i * a->dim_pad, a->dim, a->dim_pad);
    zero(out + n * a->dim_pad, (KEYS + NDP_ATT_TILE - n) * a->dim_pad);
}

/* [ROWS][D] -> [D][ROWS] times `by`, for as many rows as fill `vecs` vectors. */
static void transpose(const float *x, int64_t vecs, int64_t d, float by, float *out) {
    for (int64_t i = 0; i < vecs * LANES; i += LANES)
        for (int64_t j = 0; j < d; j += LANES) {
            vf r[LANES];
#pragma GCC unroll 16
            for (int k = 0; k < LANES; k++)
                r[k] = vec_load(x + (i + k) * d + j) * by;
            vec_transpose(r);
#pragma GCC unroll 16
            for (int k = 0; k < LANES; k++)
                vec_store(out + (j + k) * ROWS + i, r[k]);
        }
}

/* --- row blocks --- */

/* Up to ROWS rows of a kv head and what they see. */
typedef struct row_block {
    int64_t n, vecs;
    ndp_att_sight sight;
    int64_t token[ROWS], head[ROWS];
    int32_t low[ROWS], pos[ROWS];
    float shift[ROWS]; /* subtracted from the scores: forward the running maximum, backward lse; in units of log 2 */
    float sum[ROWS];   /* forward: the running sum; backward: delta */
    float *q_t;        /* [D][ROWS], scaled so that scores are powers of 2 */
    float *o;          /* forward: [ROWS][D] */
    float *q, *d_o, *d_o_t, *dq; /* backward */
} row_block;

static float *take(float **work, int64_t n) {
    float *p = *work;
    *work += n;
    return p;
}

static int task_blocks(const ndp_att *a, int64_t task) {
    int64_t left = a->rows - ndp_att_task_first(a, task);
    return (int)(((left < a->task_rows ? left : a->task_rows) + ROWS - 1) / ROWS);
}

static void row_block_init(const ndp_att *a, row_block *b, int kv, int64_t first) {
    int64_t left = a->rows - first, token = first / a->group, in_group = first % a->group;
    b->n = left < ROWS ? left : ROWS;
    b->vecs = (b->n + LANES - 1) / LANES;
    b->sight = NDP_ATT_SIGHT_NONE;
    for (int64_t i = 0; i < b->n; i++) {
        b->token[i] = token;
        b->head[i] = (int64_t)kv * a->group + in_group;
        ndp_att_token(a, token, &b->low[i], &b->pos[i]);
        ndp_att_sight_add(&b->sight, b->low[i], b->pos[i]);
        if (++in_group == a->group) {
            in_group = 0;
            token++;
        }
    }
    for (int64_t i = b->n; i < ROWS; i++) { /* rows that fill up a vector see nothing */
        b->low[i] = INT32_MAX;
        b->pos[i] = INT32_MIN;
    }
}

/* The block's rows of a [T, H dim] tensor as [ROWS][D]; rows that fill up a vector are 0. */
static void load_block(const ndp_att *a, const row_block *b, const ndp_view *v, float *out) {
    for (int64_t i = 0; i < b->n; i++)
        load_row(v, b->token[i], b->head[i] * a->dim, out + i * a->dim_pad, a->dim, a->dim_pad);
    zero(out + b->n * a->dim_pad, (b->vecs * LANES - b->n) * a->dim_pad);
}

static float score_unit(const ndp_att *a) { return a->scale * (float)M_LOG2E; }

/* Keys [from, to) of a block that at least one row of `b` sees. */
typedef struct key_range {
    int64_t from, to;
    bool all; /* every row sees all of them */
    const int32_t *pos;
} key_range;

static key_range seen_keys(const ndp_att *a, const row_block *b, int64_t block) {
    int64_t first = block * KEYS, left = a->keys - first;
    key_range r = {0, left < KEYS ? left : KEYS, ndp_att_sees_all(b->sight, a->spans[block]), a->k_pos + first};
    if (r.all)
        return r;
    while (r.from < r.to && (r.pos[r.from] < b->sight.low_min || r.pos[r.from] > b->sight.pos_max))
        r.from++;
    while (r.to > r.from && (r.pos[r.to - 1] < b->sight.low_min || r.pos[r.to - 1] > b->sight.pos_max))
        r.to--;
    return r;
}

/* s [keys][ROWS] = rows of x (keys) times y [D][ROWS]. */
static void scores(const ndp_att *a, const row_block *b, key_range r, const float *x, const float *y, float *s) {
    factor keys = {x + r.from * a->dim_pad, a->dim_pad, 1};
    block_product(r.to - r.from, b->vecs, a->dim, keys, y, ROWS, s, ROWS, false);
}

/* out [ROWS][D] += s^T times rows of x (keys). */
static void weighted_keys(const ndp_att *a, const row_block *b, key_range r, const float *s, const float *x,
                          float *out) {
    factor weights = {s, 1, ROWS};
    block_product(b->n, a->dim_pad / LANES, r.to - r.from, weights, x + r.from * a->dim_pad, a->dim_pad, out,
                  a->dim_pad, true);
}

/* out [keys][D] += s times rows of x. */
static void weighted_rows(const ndp_att *a, const row_block *b, key_range r, const float *s, const float *x,
                          float *out) {
    factor weights = {s, ROWS, 1};
    block_product(r.to - r.from, a->dim_pad / LANES, b->n, weights, x, a->dim_pad, out + r.from * a->dim_pad,
                  a->dim_pad, true);
}

/* Scores of pairs that do not see each other become -inf. */
static void hide(const row_block *b, key_range r, float *s) {
    for (int64_t j = 0; j < b->vecs * LANES; j += LANES) {
        vi low = vec_load_int(b->low + j), pos = vec_load_int(b->pos + j);
        for (int64_t k = r.from; k < r.to; k++) {
            float *at = s + (k - r.from) * ROWS + j;
            vec_store(at, vec_see(vec_load(at), low, r.pos[k], pos));
        }
    }
}

/* --- forward --- */

/* Four chains, or it waits for itself. */
static vf column_max(const float *s, int64_t keys, vf max) {
    vf m[4] = {max, max, max, max};
    int64_t k = 0;
    for (; k + 4 <= keys; k += 4)
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            m[i] = vec_max(vec_load(s + (k + i) * ROWS), m[i]);
    for (; k < keys; k++)
        m[0] = vec_max(vec_load(s + k * ROWS), m[0]);
    return vec_max(vec_max(m[0], m[1]), vec_max(m[2], m[3]));
}

/* Scores become weights; earlier sums and outputs are scaled to the new maximum. */
static void online_softmax(const ndp_att *a, row_block *b, int64_t keys, float *s) {
    float rescale[ROWS];
    for (int64_t j = 0; j < b->vecs * LANES; j += LANES) {
        vf old = vec_load(b->shift + j), max = column_max(s + j, keys, old), sum = vec_set(0);
        for (int64_t k = 0; k < keys; k++) {
            vf p = vec_exp2(vec_load(s + k * ROWS + j) - max);
            vec_store(s + k * ROWS + j, p);
            sum += p;
        }
        vf by = vec_exp2(old - max);
        vec_store(rescale + j, by);
        vec_store(b->shift + j, max);
        vec_store(b->sum + j, vec_load(b->sum + j) * by + sum);
    }
    const int64_t d = a->dim_pad;
    for (int64_t i = 0; i < b->n; i++) {
        if (rescale[i] == 1.0f)
            continue;
        for (float *o = b->o + i * d, *end = o + d; o < end; o += LANES)
            vec_store(o, vec_load(o) * rescale[i]);
    }
}

static void forward_begin(const ndp_att *a, row_block *b, float *q) {
    load_block(a, b, &a->q, q);
    transpose(q, b->vecs, a->dim_pad, score_unit(a), b->q_t);
    zero(b->o, ndp_att_row_floats(a));
    for (int i = 0; i < ROWS; i++) {
        b->shift[i] = -FLT_MAX; /* finite: hidden scores (-inf) less it are -inf, never NaN */
        b->sum[i] = 0;
    }
}

static void forward_end(const ndp_att *a, const row_block *b) {
    for (int64_t i = 0; i < b->n; i++) {
        bool none = b->sum[i] == 0;
        store_row(&a->o, b->token[i], b->head[i] * a->dim, b->o + i * a->dim_pad, none ? 0 : 1 / b->sum[i], a->dim);
        if (a->lse.data)
            ndp_view_set(&a->lse, b->token[i], b->head[i],
                         none ? -INFINITY : (double)((b->shift[i] + log2f(b->sum[i])) * (float)M_LN2));
    }
}

static void forward(const ndp_att *a, int kv, int64_t task, float *work) {
    row_block blocks[NDP_ATT_TASK_BLOCKS];
    float *k = take(&work, ndp_att_key_floats(a)), *v = take(&work, ndp_att_key_floats(a)),
          *s = take(&work, NDP_ATT_SCORE_FLOATS);
    int n = task_blocks(a, task);
    for (int i = 0; i < n; i++) {
        row_block_init(a, &blocks[i], kv, ndp_att_task_first(a, task) + (int64_t)i * ROWS);
        blocks[i].q_t = take(&work, ndp_att_row_floats(a));
        blocks[i].o = take(&work, ndp_att_row_floats(a));
        forward_begin(a, &blocks[i], k);
    }
    for (int64_t j = 0; j < a->key_blocks; j++) {
        if (!ndp_att_touches(a->sight[task], a->spans[j]))
            continue;
        load_keys(a, &a->k, kv, j, k);
        load_keys(a, &a->v, kv, j, v);
        for (int i = 0; i < n; i++) {
            key_range r = seen_keys(a, &blocks[i], j);
            if (r.from == r.to)
                continue;
            scores(a, &blocks[i], r, k, blocks[i].q_t, s);
            if (!r.all)
                hide(&blocks[i], r, s);
            online_softmax(a, &blocks[i], r.to - r.from, s);
            weighted_keys(a, &blocks[i], r, s, v, blocks[i].o);
        }
    }
    for (int i = 0; i < n; i++)
        forward_end(a, &blocks[i]);
}

/* --- backward --- */

static void backward_begin(const ndp_att *a, row_block *b, float *o) {
    load_block(a, b, &a->q, b->q);
    load_block(a, b, &a->d_o, b->d_o);
    load_block(a, b, &a->o, o);
    transpose(b->q, b->vecs, a->dim_pad, score_unit(a), b->q_t);
    transpose(b->d_o, b->vecs, a->dim_pad, 1, b->d_o_t);
    zero(b->dq, ndp_att_row_floats(a));
    for (int64_t i = 0; i < ROWS; i++) {
        b->shift[i] = INFINITY; /* rows that see nothing: every weight is 0 */
        b->sum[i] = 0;
        if (i >= b->n)
            continue;
        double lse = ndp_view_get(&a->lse, b->token[i], b->head[i]);
        if (lse != -INFINITY)
            b->shift[i] = (float)(lse * M_LOG2E);
        vf delta = vec_set(0);
        for (int64_t c = i * a->dim_pad; c < (i + 1) * a->dim_pad; c += LANES)
            delta += vec_load(o + c) * vec_load(b->d_o + c);
        b->sum[i] = vec_sum(delta);
    }
}

/* Scores become weights p, their gradients dp become those of the scores (less the scale). */
static void softmax_backward(const row_block *b, int64_t keys, float *s, float *dp) {
    for (int64_t j = 0; j < b->vecs * LANES; j += LANES) {
        vf lse = vec_load(b->shift + j), delta = vec_load(b->sum + j);
        for (int64_t k = 0; k < keys; k++) {
            vf p = vec_exp2(vec_load(s + k * ROWS + j) - lse);
            vec_store(s + k * ROWS + j, p);
            vec_store(dp + k * ROWS + j, p * (vec_load(dp + k * ROWS + j) - delta));
        }
    }
    zero(s + keys * ROWS, NDP_ATT_TILE * ROWS); /* rows that fill up a tile add nothing to dk, dv */
    zero(dp + keys * ROWS, NDP_ATT_TILE * ROWS);
}

/* Waits until all earlier tasks that touch this key block have added to it. */
static void wait_turn(const ndp_att *a, int64_t task, int64_t block, const int *done) {
    int64_t before = task - 1;
    while (before >= 0 && !ndp_att_touches(a->sight[before], a->spans[block]))
        before--;
    for (int spins = 0; __atomic_load_n(done, __ATOMIC_ACQUIRE) != (int)before + 1; spins++)
        if (spins >= 1000)
            sched_yield();
}

static void add_rows(const ndp_att *a, const ndp_view *sum, int kv, int64_t block, const float *x, float by) {
    int64_t first = block * KEYS, n = a->keys - first < KEYS ? a->keys - first : KEYS;
    for (int64_t i = 0; i < n; i++) {
        float *to = (float *)sum->data + (first + i) * sum->ld + (int64_t)kv * a->dim;
        for (int c = 0; c < a->dim; c++)
            to[c] += by * x[i * a->dim_pad + c];
    }
}

typedef struct key_buffers {
    float *k, *v, *s, *dp, *dk, *dv;
} key_buffers;

static void backward_block(const ndp_att *a, row_block *b, int64_t j, const key_buffers *w) {
    key_range r = seen_keys(a, b, j);
    if (r.from == r.to)
        return;
    scores(a, b, r, w->k, b->q_t, w->s);
    if (!r.all)
        hide(b, r, w->s);
    scores(a, b, r, w->v, b->d_o_t, w->dp);
    softmax_backward(b, r.to - r.from, w->s, w->dp);
    if (a->dv.data)
        weighted_rows(a, b, r, w->s, b->d_o, w->dv);
    if (a->dk.data)
        weighted_rows(a, b, r, w->dp, b->q, w->dk);
    if (a->dq.data)
        weighted_keys(a, b, r, w->dp, w->k, b->dq);
}

static void backward_keys(const ndp_att *a, row_block *blocks, int n, int kv, int64_t task, int64_t j,
                          const key_buffers *w) {
    int *done = a->done + kv * a->key_blocks + j;
    load_keys(a, &a->k, kv, j, w->k);
    load_keys(a, &a->v, kv, j, w->v);
    zero(w->dk, ndp_att_key_floats(a));
    zero(w->dv, ndp_att_key_floats(a));
    for (int i = 0; i < n; i++)
        backward_block(a, &blocks[i], j, w);
    wait_turn(a, task, j, done);
    if (a->dk.data)
        add_rows(a, &a->dk_sum, kv, j, w->dk, a->scale);
    if (a->dv.data)
        add_rows(a, &a->dv_sum, kv, j, w->dv, 1);
    __atomic_store_n(done, (int)task + 1, __ATOMIC_RELEASE);
}

static void backward(const ndp_att *a, int kv, int64_t task, float *work) {
    row_block blocks[NDP_ATT_TASK_BLOCKS];
    key_buffers w = {.s = take(&work, NDP_ATT_SCORE_FLOATS),
                     .dp = take(&work, NDP_ATT_SCORE_FLOATS),
                     .k = take(&work, ndp_att_key_floats(a)),
                     .v = take(&work, ndp_att_key_floats(a)),
                     .dk = take(&work, ndp_att_key_floats(a)),
                     .dv = take(&work, ndp_att_key_floats(a))};
    int n = task_blocks(a, task);
    for (int i = 0; i < n; i++) {
        row_block *b = &blocks[i];
        row_block_init(a, b, kv, ndp_att_task_first(a, task) + (int64_t)i * ROWS);
        float **buffers[] = {&b->q, &b->q_t, &b->d_o, &b->d_o_t, &b->dq};
        for (int p = 0; p < NDP_COUNT(buffers); p++)
            *buffers[p] = take(&work, ndp_att_row_floats(a));
        backward_begin(a, b, w.k);
    }
    for (int64_t j = 0; j < a->key_blocks; j++)
        if (ndp_att_touches(a->sight[task], a->spans[j]))
            backward_keys(a, blocks, n, kv, task, j, &w);
    for (int i = 0; i < n && a->dq.data; i++)
        for (int64_t row = 0; row < blocks[i].n; row++) {
            store_row(&a->dq, blocks[i].token[row], blocks[i].head[row] * a->dim, blocks[i].dq + row * a->dim_pad,
                      a->scale, a->dim);
        }
}

const ndp_att_kernels KERNELS = {forward, backward};

#endif
