/* A chunk of rows of a document, of a key head and of each of its value heads: what the forward and the backward of the
 * delta rule share (ops/delta_rule.c has the formulas). Compiled once per instruction set.
 *
 * Buffers have a multiple of BAND rows; those that fill up a chunk are 0 in q, k, v and do, and so everywhere.
 * Triangles are [CHUNK][CHUNK], and hold numbers up to the end of a band's diagonal block, 0 above the diagonal. */
#ifndef NDP_OPS_CPU_CPU_DELTA_RULE_CHUNK_H
#define NDP_OPS_CPU_CPU_DELTA_RULE_CHUNK_H

#include "ops/cpu/cpu_block_product.h"
#include "ops/cpu/cpu_delta_rule.h"

enum { CHUNK = NDP_DELTA_CHUNK, BAND = NDP_DELTA_BAND, SQUARE = NDP_DELTA_SQUARE };

/* Of a key head. kk, qk: products of rows i >= j. */
typedef struct delta_chunk {
    int64_t first, n, pad;          /* rows, and with those that fill it up */
    bool begins, ends;              /* a document: the state before it is 0, that after it is not read */
    float q_by[CHUNK], k_by[CHUNK]; /* what rows were multiplied by */
    float *q, *k, *k_t, *kk, *qk;
} delta_chunk;

/* Of a value head. l: the product of the decays between rows; a: -A, with any
 * diagonal; p: P. */
typedef struct delta_head {
    int64_t head;
    float since[CHUNK], until[CHUNK], beta[CHUNK]; /* decays from before the chunk to a row, from a row to its end */
    float *l, *a, *p;
} delta_head;

/* --- rows --- */

/* x[i] = sum of a[i] b[i] over `columns` */
INLINE float dot_of(const float *a, const float *b, int64_t columns) {
    vf sum = vec_set(0);
    for (int64_t c = 0; c < columns; c += LANES)
        sum += vec_load(a + c) * vec_load(b + c);
    return vec_sum(sum);
}

INLINE void scale_row(float *x, float by, int64_t columns) {
    for (int64_t c = 0; c < columns; c += LANES)
        vec_store(x + c, vec_load(x + c) * by);
}

/* The chunk's rows of one head, [pad][ld], of which `n` columns are not 0. */
static void load_chunk(const delta_chunk *c, const ndp_view *v, int64_t head, int n, ndp_delta_cols of, float *out) {
    for (int64_t i = 0; i < c->n; i++)
        load_row(v, c->first + i, head * n, out + i * of.ld, n, of.pad);
    zero(out + c->n * of.ld, (c->pad - c->n) * of.ld);
}

static void scale_rows(const delta_chunk *c, float *x, ndp_delta_cols of, const float *by) {
    for (int64_t i = 0; i < c->n; i++)
        scale_row(x + i * of.ld, by[i], of.pad);
}

/* Rows of length `length`, less what the epsilon takes; by[i]: the reciprocal of what they were divided by. */
static void load_units(const delta_chunk *c, const ndp_view *v, int64_t head, ndp_delta_cols of, float length,
                       float *out, float by[CHUNK]) {
    load_chunk(c, v, head, of.n, of, out);
    for (int64_t i = 0; i < c->n; i++) {
        float *row = out + i * of.ld;
        by[i] = 1 / sqrtf(dot_of(row, row, of.pad) + (float)NDP_DELTA_EPS);
        scale_row(row, length * by[i], of.pad);
    }
}

/* --- products --- */

/* c [i][j] = the products of row i of x [pad][ld] and column j of y_t [depth][CHUNK], j up to the end of i's band. */
static void triangle(const delta_chunk *ch, const float *x, int64_t ld, int64_t depth, const float *y_t, float *c) {
    for (int64_t i = 0; i < ch->pad; i += BAND)
        block_product(BAND, (i + BAND) / LANES, depth, (factor){x + i * ld, ld, 1}, y_t, CHUNK, c + i * CHUNK, CHUNK,
                      false);
}

/* y (+)= triangle x rows */
static void triangle_rows(const delta_chunk *ch, const float *l, ndp_delta_cols of, const float *x, float *y,
                          bool add) {
    for (int64_t i = 0; i < ch->pad; i += BAND)
        block_product(BAND, of.pad / LANES, i + BAND, (factor){l + i * CHUNK, CHUNK, 1}, x, of.ld, y + i * of.ld, of.ld,
                      add);
}

/* y (+)= the triangle's transpose x rows */
static void triangle_t_rows(const delta_chunk *ch, const float *l, ndp_delta_cols of, const float *x, float *y,
                            bool add) {
    for (int64_t i = 0; i < ch->pad; i += BAND)
        block_product(BAND, of.pad / LANES, ch->pad - i, (factor){l + i * CHUNK + i, 1, CHUNK}, x + i * of.ld, of.ld,
                      y + i * of.ld, of.ld, add);
}

/* y [rows][E] = x [rows][D] S */
static void rows_state(const ndp_delta *d, const delta_chunk *c, const float *x, const float *s, float *y) {
    block_product(c->pad, d->of_v.pad / LANES, d->of_q.n, (factor){x, d->of_q.ld, 1}, s, d->of_v.ld, y, d->of_v.ld,
                  false);
}

/* S (+)= x^T y, of the rows of the chunk */
static void add_to_state(const ndp_delta *d, const delta_chunk *c, const float *x, const float *y, float *s, bool add) {
    block_product(d->of_q.pad, d->of_v.pad / LANES, c->n, (factor){x, 1, d->of_q.ld}, y, d->of_v.ld, s, d->of_v.ld,
                  add);
}

static void scale_state(const ndp_delta *d, float *s, float by) {
    for (int64_t i = 0; i < d->of_q.pad; i++)
        scale_row(s + i * d->of_v.ld, by, d->of_v.pad);
}

/* Solves (I - a) u = r in a band's diagonal block, in place; `back`: (I - a)^T. */
INLINE void solve_band(const float *a, int64_t columns, float *r, int64_t ld, const bool back) {
    for (int64_t c = 0; c < columns; c += LANES) {
        vf u[BAND];
#pragma GCC unroll 16
        for (int i = 0; i < BAND; i++)
            u[i] = vec_load(r + i * ld + c);
#pragma GCC unroll 16
        for (int i = 1; i < BAND; i++)
#pragma GCC unroll 16
            for (int j = 0; j < i; j++) {
                if (back)
                    u[BAND - 1 - i] += u[BAND - 1 - j] * a[(BAND - 1 - j) * CHUNK + BAND - 1 - i];
                else
                    u[i] += u[j] * a[i * CHUNK + j];
            }
#pragma GCC unroll 16
        for (int i = 0; i < BAND; i++)
            vec_store(r + i * ld + c, u[i]);
    }
}

static void solve(const delta_chunk *c, const float *a, ndp_delta_cols of, float *r) {
    for (int64_t i = 0; i < c->pad; i += BAND) {
        if (i > 0)
            block_product(BAND, of.pad / LANES, i, (factor){a + i * CHUNK, CHUNK, 1}, r, of.ld, r + i * of.ld, of.ld,
                          true);
        solve_band(a + i * CHUNK + i, of.pad, r + i * of.ld, of.ld, false);
    }
}

static void solve_back(const delta_chunk *c, const float *a, ndp_delta_cols of, float *r) {
    for (int64_t i = c->pad - BAND; i >= 0; i -= BAND) {
        int64_t next = i + BAND;
        if (next < c->pad)
            block_product(BAND, of.pad / LANES, c->pad - next, (factor){a + next * CHUNK + i, 1, CHUNK},
                          r + next * of.ld, of.ld, r + i * of.ld, of.ld, true);
        solve_band(a + i * CHUNK + i, of.pad, r + i * of.ld, of.ld, true);
    }
}

/* --- a chunk --- */

static delta_chunk chunk_at(const ndp_delta *d, const ndp_delta_task *t, int64_t first) {
    delta_chunk c = {.first = first, .n = t->end - first};
    c.n = c.n < d->chunk ? c.n : d->chunk;
    c.pad = (c.n + BAND - 1) / BAND * BAND;
    c.begins = first == t->first && !t->goes_on, c.ends = first + c.n == t->end && !t->last;
    return c;
}

static void chunk_begin(const ndp_delta *d, const ndp_delta_task *t, delta_chunk *c, bool queries) {
    ndp_delta_cols of = d->of_q;
    load_units(c, &d->k, t->key_head, of, 1, c->k, c->k_by);
    transpose(c->k, of.ld, c->pad, of.pad, 1, c->k_t, CHUNK);
    triangle(c, c->k, of.ld, of.n, c->k_t, c->kk);
    if (!queries)
        return;
    load_units(c, &d->q, t->key_head, of, 1 / sqrtf((float)of.n), c->q, c->q_by);
    triangle(c, c->q, of.ld, of.n, c->k_t, c->qk);
}

/* Products of decays. What is below the least that a product can need is 0, so that none is denormal; NaN stays. */
INLINE vf decayed(vf x, float by) {
    vf y = x * by;
    return (vf)((vi)y & ~(vi)(y < 1e-30f));
}

static void make_decays(const delta_chunk *c, const float *decay, delta_head *h) {
    float *l = h->l;
    zero(l, c->pad * CHUNK);
    for (int64_t i = 0; i < c->n; i++) {
        for (int64_t j = 0; j < i; j += LANES)
            vec_store(l + i * CHUNK + j, decayed(vec_load(l + (i - 1) * CHUNK + j), decay[i]));
        l[i * CHUNK + i] = 1;
        h->since[i] = decay[0] * l[i * CHUNK];
    }
    for (int64_t j = 0; j < CHUNK; j += LANES)
        vec_store(h->until + j, vec_load(l + (c->n - 1) * CHUNK + j));
}

/* The triangles of a value head, whose buffers are there. */
static void head_begin(const ndp_delta *d, const delta_chunk *c, int64_t head, delta_head *h, bool queries) {
    float decay[CHUNK];
    h->head = head;
    for (int64_t i = 0; i < c->n; i++) {
        decay[i] = expf((float)ndp_view_get(&d->g, c->first + i, head));
        h->beta[i] = 1 / (1 + expf(-(float)ndp_view_get(&d->b, c->first + i, head)));
    }
    make_decays(c, decay, h);
    for (int64_t i = 0; i < c->pad; i++) {
        float by = i < c->n ? -h->beta[i] : 0;
        for (int64_t at = i * CHUNK, end = at + i / BAND * BAND + BAND; at < end; at += LANES) {
            vf l = vec_load(h->l + at);
            vec_store(h->a + at, vec_load(c->kk + at) * l * by);
            if (queries)
                vec_store(h->p + at, vec_load(c->qk + at) * l);
        }
    }
}

/* The row of a head in a matrix of states of pieces. */
static int64_t state_row(const ndp_delta *d, const ndp_delta_task *t, int64_t head) {
    return (t->piece * d->heads + head) * d->of_q.n;
}

/* A state from a matrix of those of pieces: its first `n` columns; and back. */
static void load_state(const ndp_delta *d, const ndp_view *from, int64_t row, int64_t col, ndp_delta_cols of,
                       float *s) {
    for (int64_t i = 0; i < d->of_q.n; i++)
        load_row(from, row + i, col, s + i * of.ld, of.n, of.pad);
    zero(s + (int64_t)d->of_q.n * of.ld, (int64_t)(d->of_q.pad - d->of_q.n) * of.ld);
}
static void store_state(const ndp_delta *d, const float *s, int64_t row, const ndp_view *to) {
    for (int64_t i = 0; i < d->of_q.n; i++)
        store_row(to, row + i, 0, s + i * d->of_v.ld, 1, d->of_v.n);
}

/* U, from v and the state before the chunk; `read` is a buffer. */
static void make_u(const ndp_delta *d, const delta_chunk *c, const delta_head *h, const float *s, float *read,
                   float *u) {
    ndp_delta_cols of = d->of_v;
    load_chunk(c, &d->v, h->head, d->v_dim, of, u);
    if (!c->begins)
        rows_state(d, c, c->k, s, read);
    for (int64_t i = 0; i < c->n; i++) {
        const float *from = read + i * of.ld;
        float *row = u + i * of.ld;
        for (int64_t e = 0; e < of.pad && !c->begins; e += LANES)
            vec_store(row + e, vec_load(row + e) - vec_load(from + e) * h->since[i]);
        scale_row(row, h->beta[i], of.pad);
    }
    solve(c, h->a, of, u);
}

/* The state after the chunk; u_by is U, times the decays to the chunk's end. */
static void next_state(const ndp_delta *d, const delta_chunk *c, const delta_head *h, const float *u_by, float *s) {
    if (!c->begins)
        scale_state(d, s, h->since[c->n - 1]);
    add_to_state(d, c, c->k, u_by, s, !c->begins);
}

#endif
