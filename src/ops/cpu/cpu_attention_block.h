/* What the kernels of attention tasks share, whatever they multiply with: rows in and out of memory, the rows of a
 * block, the keys they see, the order in which tasks add to dk and dv. Needs LANES and the vectors of
 * cpu_attention_vector.h. */
#ifndef NDP_OPS_CPU_CPU_ATTENTION_BLOCK_H
#define NDP_OPS_CPU_CPU_ATTENTION_BLOCK_H

#include "ops/cpu/cpu_attention_task.h"
#include "ops/cpu/cpu_block_rows.h"

#include <sched.h>

enum { ROWS = NDP_ATT_ROWS, KEYS = NDP_ATT_KEYS };

/* --- row blocks --- */

/* Up to ROWS rows of a kv head and what they see. */
typedef struct row_block {
    int64_t n, vecs;
    ndp_att_sight sight;
    int64_t token[ROWS], head[ROWS];
    int32_t low[ROWS], pos[ROWS];
    float shift[ROWS]; /* subtracted from the scores: forward the running maximum, backward lse; in units of log 2 */
    float sum[ROWS];   /* forward: the running sum; backward: delta */
} row_block;

static int task_blocks(const ndp_att *a, int64_t task) {
    int64_t left = a->rows - ndp_att_task_first(a, task);
    return (int)(((left < a->task_rows ? left : a->task_rows) + ROWS - 1) / ROWS);
}

/* Rows [first, first + limit) of the kv head, as far as they exist. */
static void row_block_init(const ndp_att *a, row_block *b, int kv, int64_t first, int64_t limit) {
    int64_t left = a->rows - first, token = first / a->group, in_group = first % a->group;
    b->n = left < limit ? left : limit;
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

static float score_unit(const ndp_att *a) { return a->scale * (float)M_LOG2E; }

/* Keys [from, to) of a block that at least one row of `b` sees. */
typedef struct key_range {
    int64_t from, to;
    bool all; /* every row sees all of them */
    const int32_t *pos;
} key_range;

static key_range seen_keys(const ndp_att *a, const row_block *b, int64_t block) {
    key_range r = {0, ndp_att_key_count(a, block), ndp_att_sees_all(b->sight, a->spans[block]),
                   a->k_pos + ndp_att_key_first(a, block)};
    if (r.all)
        return r;
    while (r.from < r.to && (r.pos[r.from] < b->sight.low_min || r.pos[r.from] > b->sight.pos_max))
        r.from++;
    while (r.to > r.from && (r.pos[r.to - 1] < b->sight.low_min || r.pos[r.to - 1] > b->sight.pos_max))
        r.to--;
    return r;
}

/* In s [keys][ld], the scores of the block's rows [row, row + rows), those of pairs that do not see each other become
 * -inf. */
static void hide(const row_block *b, key_range r, int64_t row, int64_t rows, float *s, int64_t ld) {
    for (int64_t j = 0; j < rows; j += LANES) {
        vi low = vec_load_int(b->low + row + j), pos = vec_load_int(b->pos + row + j);
        for (int64_t k = r.from; k < r.to; k++) {
            float *at = s + (k - r.from) * ld + j;
            vec_store(at, vec_see(vec_load(at), low, r.pos[k], pos));
        }
    }
}

/* Of the LANES columns at s [keys][ld], and of max. Four chains, or it waits for itself. */
static vf column_max(const float *s, int64_t keys, int64_t ld, vf max) {
    vf m[4] = {max, max, max, max};
    int64_t k = 0;
    for (; k + 4 <= keys; k += 4)
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            m[i] = vec_max(vec_load(s + (k + i) * ld), m[i]);
    for (; k < keys; k++)
        m[0] = vec_max(vec_load(s + k * ld), m[0]);
    return vec_max(vec_max(m[0], m[1]), vec_max(m[2], m[3]));
}

static void store_whole_row(const ndp_view *v, int64_t row, const float *x) {
    store_row(v, row, 0, x, 1, (int)v->cols);
}

/* --- statistics of rows --- */

/* With sinks the sum begins with them. */
static void forward_stats_begin(const ndp_att *a, row_block *b) {
    for (int i = 0; i < ROWS; i++) {
        bool sunk = a->sink.data && i < b->n;
        float sink = sunk ? (float)ndp_view_get(&a->sink, 0, a->first + b->head[i]) * (float)M_LOG2E : -FLT_MAX;
        b->sum[i] = sunk && sink >= -FLT_MAX;
        b->shift[i] = sink < -FLT_MAX ? -FLT_MAX : sink; /* finite: hidden scores (-inf) less it are -inf, never NaN */
    }
}

/* Writes row i of the output, x [D] over the sum, and its lse. */
static void store_output(const ndp_att *a, const row_block *b, int64_t i, const float *x) {
    bool none = b->sum[i] == 0;
    store_row(&a->o, b->token[i], b->head[i] * a->of_v.n, x, none ? 0 : 1 / b->sum[i], a->of_v.n);
    if (a->lse.data)
        ndp_view_set(&a->lse, b->token[i], b->head[i],
                     none ? -INFINITY : (double)((b->shift[i] + log2f(b->sum[i])) * (float)M_LN2));
}

/* Row i of dq, x [D] times the scale. */
static void store_dq(const ndp_att *a, const row_block *b, int64_t i, const float *x) {
    store_row(&a->dq, b->token[i], b->head[i] * a->of_q.n, x, a->scale, a->of_q.n);
}

static float delta(const ndp_att *a, const row_block *b, int64_t i, float *work) {
    int64_t col = b->head[i] * a->of_v.n;
    float *o = work, *d_o = work + a->of_v.pad;
    load_row(&a->o, b->token[i], col, o, a->of_v.n, a->of_v.pad);
    load_row(&a->d_o, b->token[i], col, d_o, a->of_v.n, a->of_v.pad);
    vf sum = vec_set(0);
    for (int64_t c = 0; c < a->of_v.pad; c += LANES)
        sum += vec_load(o + c) * vec_load(d_o + c);
    return vec_sum(sum);
}

/* lse and delta of the rows; `work` holds 2 D floats. */
static void backward_stats_begin(const ndp_att *a, row_block *b, float *work) {
    for (int64_t i = 0; i < ROWS; i++) {
        b->shift[i] = INFINITY; /* rows that see nothing: every weight is 0 */
        b->sum[i] = 0;
        if (i >= b->n)
            continue;
        double lse = ndp_view_get(&a->lse, b->token[i], b->head[i]);
        if (lse != -INFINITY)
            b->shift[i] = (float)(lse * M_LOG2E);
        b->sum[i] = delta(a, b, i, work);
    }
}

/* --- dk and dv --- */

/* Waits until all earlier tasks that touch this key block have added to it. */
static void wait_turn(const ndp_att *a, int64_t task, int64_t block, const int *done) {
    int64_t before = task - 1;
    while (before >= 0 && !ndp_att_touches(a->sight[before], a->spans[block]))
        before--;
    for (int spins = 0; __atomic_load_n(done, __ATOMIC_ACQUIRE) != (int)before + 1; spins++)
        if (spins >= 1000)
            sched_yield();
}

static void add_rows(const ndp_att *a, const ndp_view *sum, int n_cols, int kv, int64_t block, const float *x,
                     float by) {
    int64_t first = ndp_att_key_first(a, block), n = ndp_att_key_count(a, block);
    for (int64_t i = 0; i < n; i++) {
        float *to = (float *)sum->data + (first + i) * sum->ld + (int64_t)kv * n_cols;
        for (int c = 0; c < n_cols; c++)
            to[c] += by * x[i * a->dim_pad + c];
    }
}

/* Adds a task's part of a key block's dk and dv [keys][D]. */
static void add_in_turn(const ndp_att *a, int kv, int64_t task, int64_t block, const float *dk, const float *dv) {
    int *done = a->done + kv * a->key_blocks + block;
    wait_turn(a, task, block, done);
    if (a->dk.data)
        add_rows(a, &a->dk_sum, a->of_q.n, kv, block, dk, a->scale);
    if (a->dv.data)
        add_rows(a, &a->dv_sum, a->of_v.n, kv, block, dv, 1);
    __atomic_store_n(done, (int)task + 1, __ATOMIC_RELEASE);
}

#endif
