/* The tasks of the delta rule (cpu_delta_rule.h), compiled once per instruction set by the cpu_delta_rule_<isa>.c
 * files.
 */
#ifndef NDP_OPS_CPU_CPU_DELTA_RULE_KERNEL_H
#define NDP_OPS_CPU_CPU_DELTA_RULE_KERNEL_H

#include "ops/cpu/cpu_delta_rule_chunk.h"

/* --- forward --- */

/* o, from the state before the chunk and U. */
static void make_o(const ndp_delta *d, const delta_chunk *c, const delta_head *h, const float *s, const float *u,
                   float *o) {
    ndp_delta_cols of = d->of_v;
    if (!c->begins) {
        rows_state(d, c, c->q, s, o);
        scale_rows(c, o, of, h->since);
    }
    triangle_rows(c, h->p, of, u, o, !c->begins);
    for (int64_t i = 0; i < c->n; i++)
        store_row(&d->o, c->first + i, h->head * of.n, o + i * of.ld, 1, of.n);
}

static void forward(const ndp_delta *d, const ndp_delta_task *t, void *work) {
    delta_head h = {.l = take(&work, SQUARE), .a = take(&work, SQUARE), .p = take(&work, SQUARE)};
    float *q = take(&work, ndp_delta_rows(d->of_q)), *k = take(&work, ndp_delta_rows(d->of_q));
    float *k_t = take(&work, ndp_delta_columns(d->of_q)), *kk = take(&work, SQUARE);
    float *qk = take(&work, SQUARE), *u = take(&work, ndp_delta_rows(d->of_v));
    float *o = take(&work, ndp_delta_rows(d->of_v)), *states = work;
    for (int i = 0; i < d->group && t->goes_on; i++)
        load_state(d, &d->states, state_row(d, t, t->key_head * d->group + i), 0, d->of_v,
                   states + i * ndp_delta_state(d));
    for (int64_t first = t->first; first < t->end; first += d->chunk) {
        delta_chunk c = chunk_at(d, t, first);
        c.q = q, c.k = k, c.k_t = k_t, c.kk = kk, c.qk = qk;
        chunk_begin(d, t, &c, true);
        for (int i = 0; i < d->group; i++) {
            float *s = states + i * ndp_delta_state(d);
            head_begin(d, &c, t->key_head * d->group + i, &h, true);
            make_u(d, &c, &h, s, o, u);
            make_o(d, &c, &h, s, u, o);
            if (c.ends)
                continue;
            scale_rows(&c, u, d->of_v, h.until);
            next_state(d, &c, &h, u, s);
        }
    }
}

/* --- backward --- */

typedef struct delta_backward {
    const ndp_delta *d;
    const ndp_delta_task *t;
    delta_chunk c;
    delta_head h;
    float *q_t, *t_q, *dq_t, *dk_t;  /* [D][CHUNK]: Q^T, a product, the gradients of q^ and k^ */
    float *m, *w, *dp, *da, *square; /* the sums of dP L and of W over value heads; of one; a transpose */
    float *rows_q;                   /* [CHUNK][D] */
    float *d_o, *r, *rows_v, *v_t;   /* of a value head: dO; R; other rows; some rows, transposed */
    float *ds, *kept;                /* gradients of states; what is kept of all chunks */
    /* What the log of a row's decay gets. It is a factor of what a later row, or the row itself, takes from an earlier
     * one or from the state before: sums over just those, since sums over more of them would cancel. */
    float from_state[CHUNK]; /* of each row that takes from the state before */
    float to_state[CHUNK];   /* of each row whose U the state after has */
    float between[CHUNK]; /* of the pairs of a later row, or itself, and an earlier one: for each row, all of these */
    float through;        /* of the state before, which the state after has */
} delta_backward;

/* The state before a chunk, and its U. */
static float *kept_state(const delta_backward *w, int64_t first, int i) {
    int64_t chunk = (first - w->t->first) / w->d->chunk;
    return w->kept + (chunk * w->d->group + i) * (ndp_delta_state(w->d) + ndp_delta_rows(w->d->of_v));
}
static float *kept_u(const delta_backward *w, int64_t first, int i) {
    return kept_state(w, first, i) + ndp_delta_state(w->d);
}

/* What is known of states before the rows, and of gradients after them. */
static void load_ends(delta_backward *w) {
    const ndp_delta *d = w->d;
    for (int i = 0; i < d->group; i++) {
        int64_t row = state_row(d, w->t, w->t->key_head * d->group + i);
        if (w->t->goes_on)
            load_state(d, &d->states, row, 0, d->of_v, kept_state(w, w->t->first, i));
        if (w->t->last)
            load_state(d, &d->after, row, 0, d->of_v, w->ds + i * ndp_delta_state(d));
    }
}

/* States and U of all chunks. */
static void make_states(delta_backward *w) {
    const ndp_delta *d = w->d;
    for (int64_t first = w->t->first; first < w->t->end; first += d->chunk) {
        delta_chunk c = chunk_at(d, w->t, first);
        c.k = w->c.k, c.k_t = w->c.k_t, c.kk = w->c.kk;
        chunk_begin(d, w->t, &c, false);
        for (int i = 0; i < d->group; i++) {
            float *s = kept_state(w, first, i), *u = kept_u(w, first, i);
            head_begin(d, &c, w->t->key_head * d->group + i, &w->h, false);
            make_u(d, &c, &w->h, s, w->rows_v, u);
            if (first + c.n == w->t->end)
                continue;
            float *next = kept_state(w, first + d->chunk, i);
            if (!c.begins)
                memcpy(next, s, (size_t)ndp_delta_state(d) * sizeof(float));
            memcpy(w->rows_v, u, (size_t)(c.pad * d->of_v.ld) * sizeof(float));
            scale_rows(&c, w->rows_v, d->of_v, w->h.until);
            next_state(d, &c, &w->h, w->rows_v, next);
        }
    }
}

/* R, from dO and the gradient of the state after the chunk. */
static void make_r(delta_backward *w, const float *u, const float *ds) {
    const delta_chunk *c = &w->c;
    ndp_delta_cols of = w->d->of_v;
    w->through = 0;
    memset(w->from_state, 0, sizeof w->from_state), memset(w->to_state, 0, sizeof w->to_state);
    if (!c->ends) {
        rows_state(w->d, c, c->k, ds, w->r);
        scale_rows(c, w->r, of, w->h.until);
        for (int64_t i = 0; i < c->n; i++)
            w->to_state[i] = dot_of(u + i * of.ld, w->r + i * of.ld, of.pad);
    }
    triangle_t_rows(c, w->h.p, of, w->d_o, w->r, !c->ends);
    solve_back(c, w->h.a, of, w->r);
}

/* The sum of the first n. */
static float sum_before(const float *x, int64_t n) {
    vf sum = vec_set(0);
    float rest = 0;
    for (int64_t j = 0; j < n / LANES * LANES; j += LANES)
        sum += vec_load(x + j);
    for (int64_t j = n / LANES * LANES; j < n; j++)
        rest += x[j];
    return vec_sum(sum) + rest;
}

/* dP L and W of the head are added to the sums, and what they say of the decays between rows. */
static void add_triangles(delta_backward *w, const float *u) {
    const delta_chunk *c = &w->c;
    ndp_delta_cols of = w->d->of_v;
    float down[CHUNK] = {0};
    transpose(u, of.ld, c->pad, of.pad, 1, w->v_t, CHUNK);
    triangle(c, w->d_o, of.ld, of.n, w->v_t, w->dp);
    triangle(c, w->r, of.ld, of.n, w->v_t, w->da);
    for (int64_t i = c->n - 1; i >= 0; i--) { /* down: of each column, the rows so far */
        w->da[i * CHUNK + i] = 0;
        for (int64_t j = 0, at = i * CHUNK; j < i / BAND * BAND + BAND; j += LANES, at += LANES) {
            vf l = vec_load(w->h.l + at), m = vec_load(w->dp + at) * l, a = vec_load(w->da + at) * l * -w->h.beta[i];
            vf both = vec_load(c->qk + at) * m + vec_load(c->kk + at) * a;
            vec_store(w->m + at, vec_load(w->m + at) + m);
            vec_store(w->w + at, vec_load(w->w + at) + a);
            vec_store(down + j, vec_load(down + j) + both);
        }
        w->between[i] = sum_before(down, i);
    }
}

/* Adds the product, [D][CHUNK], to a gradient, and that of each column of it and of x_t to what rows take from the
 * state (NULL: they do not). */
static void add_columns(delta_backward *w, const float *x_t, float *gradient) {
    const delta_chunk *c = &w->c;
    for (int64_t j = 0; j < c->pad; j += LANES) {
        vf sum = vec_load(w->from_state + j);
        for (int64_t at = j; at < w->d->of_q.n * CHUNK; at += CHUNK) {
            vf x = vec_load(w->t_q + at);
            vec_store(gradient + at, vec_load(gradient + at) + x);
            if (x_t)
                sum += x * vec_load(x_t + at);
        }
        vec_store(w->from_state + j, sum);
    }
}

/* The product (+)= a state x rows^T */
static void state_columns(delta_backward *w, const float *s, const float *rows, bool add) {
    ndp_delta_cols of = w->d->of_v;
    transpose(rows, of.ld, w->c.pad, of.pad, 1, w->v_t, CHUNK);
    block_product(w->d->of_q.pad, w->c.pad / LANES, of.n, (factor){s, of.ld, 1}, w->v_t, CHUNK, w->t_q, CHUNK, add);
}

/* What meets the states: d_o becomes exp(c) dO, the other rows -exp(c) beta R. dS becomes that of the state before. */
static void through_states(delta_backward *w, const float *s, const float *u, float *ds) {
    const delta_chunk *c = &w->c;
    ndp_delta_cols of = w->d->of_v;
    int64_t bytes = c->pad * of.ld * (int64_t)sizeof(float);
    float by[CHUNK];
    if (!c->ends) {
        memcpy(w->rows_v, u, (size_t)bytes);
        scale_rows(c, w->rows_v, of, w->h.until);
        state_columns(w, ds, w->rows_v, false);
        add_columns(w, NULL, w->dk_t);
    }
    if (!c->begins) {
        for (int64_t i = 0; i < c->n; i++)
            by[i] = -w->h.since[i] * w->h.beta[i];
        memcpy(w->rows_v, w->r, (size_t)bytes);
        scale_rows(c, w->rows_v, of, by);
        state_columns(w, s, w->rows_v, false);
        add_columns(w, c->k_t, w->dk_t);
    }
    if (c->begins)
        return;
    scale_rows(c, w->d_o, of, w->h.since);
    state_columns(w, s, w->d_o, false);
    add_columns(w, w->q_t, w->dq_t);
    if (!c->ends) {
        float whole = w->h.since[c->n - 1];
        for (int64_t i = 0; i < w->d->of_q.pad; i++)
            w->through += whole * dot_of(s + i * of.ld, ds + i * of.ld, of.pad);
        scale_state(w->d, ds, whole);
    }
    add_to_state(w->d, c, c->q, w->d_o, ds, !c->ends);
    add_to_state(w->d, c, c->k, w->rows_v, ds, true);
}

/* dv, db and dg of a value head. */
static void store_head(const delta_backward *w, const float *u) {
    const delta_chunk *c = &w->c;
    const delta_head *h = &w->h;
    ndp_delta_cols of = w->d->of_v;
    double later = (double)w->through, earlier = 0;
    for (int64_t i = 0; i < c->n; i++)
        earlier += (double)w->to_state[i];
    for (int64_t i = c->n - 1; i >= 0; i--) {
        const float *r = w->r + i * of.ld;
        later += (double)w->from_state[i], earlier -= (double)w->to_state[i];
        if (w->d->dv.data)
            store_row(&w->d->dv, c->first + i, h->head * of.n, r, h->beta[i], of.n);
        if (w->d->db.data)
            ndp_view_set(&w->d->db, c->first + i, h->head,
                         (double)((1 - h->beta[i]) * dot_of(r, u + i * of.ld, of.pad)));
        if (w->d->dg.data)
            ndp_view_set(&w->d->dg, c->first + i, h->head, later + earlier + (double)w->between[i]);
    }
}

/* dx of the chunk's rows from dx^ [D][CHUNK], x^ = length x by: length by (dx^ - x^ (x^ . dx^) / length^2). */
static void store_units(const delta_backward *w, const float *x, const float *by, float length, const float *gradient,
                        const ndp_view *dx) {
    ndp_delta_cols of = w->d->of_q;
    if (!dx->data)
        return;
    transpose(gradient, CHUNK, of.pad, w->c.pad, 1, w->rows_q, of.ld);
    for (int64_t i = 0; i < w->c.n; i++) {
        float *row = w->rows_q + i * of.ld;
        const float *unit = x + i * of.ld;
        float along = dot_of(unit, row, of.pad) / (length * length);
        for (int64_t e = 0; e < of.pad; e += LANES)
            vec_store(row + e, vec_load(row + e) - vec_load(unit + e) * along);
        store_row(dx, w->c.first + i, w->t->key_head * of.n, row, length * by[i], of.n);
    }
}

/* The triangles' parts of dq^ and dk^, for all value heads. */
static void close_chunk(delta_backward *w) {
    const delta_chunk *c = &w->c;
    ndp_delta_cols of = w->d->of_q;
    transpose(w->m, CHUNK, c->pad, c->pad, 1, w->square, CHUNK);
    for (int64_t i = 0; i < c->pad; i += BAND) {
        block_product(of.pad, BAND / LANES, i + BAND, (factor){c->k, 1, of.ld}, w->square + i, CHUNK, w->dq_t + i,
                      CHUNK, true);
        block_product(of.pad, BAND / LANES, c->pad - i, (factor){c->q + i * of.ld, 1, of.ld}, w->m + i * CHUNK + i,
                      CHUNK, w->dk_t + i, CHUNK, true);
    }
    transpose(w->w, CHUNK, c->pad, c->pad, 1, w->square, CHUNK);
    for (int64_t at = 0; at < c->pad * CHUNK; at += LANES)
        vec_store(w->square + at, vec_load(w->square + at) + vec_load(w->w + at));
    block_product(of.pad, c->pad / LANES, c->pad, (factor){c->k, 1, of.ld}, w->square, CHUNK, w->dk_t, CHUNK, true);
    store_units(w, c->q, c->q_by, 1 / sqrtf((float)of.n), w->dq_t, &w->d->dq);
    store_units(w, c->k, c->k_by, 1, w->dk_t, &w->d->dk);
}

static void backward_chunk(delta_backward *w, int64_t first) {
    const ndp_delta *d = w->d;
    delta_chunk at = chunk_at(d, w->t, first), *c = &w->c;
    c->first = at.first, c->n = at.n, c->pad = at.pad, c->begins = at.begins, c->ends = at.ends;
    chunk_begin(d, w->t, c, true);
    transpose(c->q, d->of_q.ld, c->pad, d->of_q.pad, 1, w->q_t, CHUNK);
    zero(w->m, SQUARE), zero(w->w, SQUARE);
    zero(w->dq_t, ndp_delta_columns(d->of_q)), zero(w->dk_t, ndp_delta_columns(d->of_q));
    for (int i = 0; i < d->group; i++) {
        float *u = kept_u(w, first, i), *ds = w->ds + i * ndp_delta_state(d);
        head_begin(d, c, w->t->key_head * d->group + i, &w->h, true);
        load_chunk(c, &d->d_o, w->h.head, d->v_dim, d->of_v, w->d_o);
        make_r(w, u, ds);
        add_triangles(w, u);
        through_states(w, kept_state(w, first, i), u, ds);
        store_head(w, u);
    }
    close_chunk(w);
}

static void backward(const ndp_delta *d, const ndp_delta_task *t, void *work) {
    delta_backward w = {.d = d, .t = t};
    float **squares[] = {&w.c.kk, &w.c.qk, &w.h.l, &w.h.a, &w.h.p, &w.m, &w.w, &w.dp, &w.da, &w.square};
    float **columns[] = {&w.c.k_t, &w.q_t, &w.t_q, &w.dq_t, &w.dk_t}, **rows[] = {&w.c.q, &w.c.k, &w.rows_q};
    float **rows_v[] = {&w.d_o, &w.r, &w.rows_v};
    for (int i = 0; i < NDP_COUNT(squares); i++)
        *squares[i] = take(&work, SQUARE);
    for (int i = 0; i < NDP_COUNT(columns); i++)
        *columns[i] = take(&work, ndp_delta_columns(d->of_q));
    for (int i = 0; i < NDP_COUNT(rows); i++)
        *rows[i] = take(&work, ndp_delta_rows(d->of_q));
    for (int i = 0; i < NDP_COUNT(rows_v); i++)
        *rows_v[i] = take(&work, ndp_delta_rows(d->of_v));
    w.v_t = take(&work, ndp_delta_columns(d->of_v));
    w.ds = take(&work, d->group * ndp_delta_state(d)), w.kept = work;
    load_ends(&w);
    make_states(&w);
    for (int64_t first = t->first + (t->end - t->first - 1) / d->chunk * d->chunk; first >= t->first; first -= d->chunk)
        backward_chunk(&w, first);
}

/* --- maps of pieces --- */

/* The last document of a piece: from [0 | I] where it goes on from the piece before, with E + D columns, else E. */
static void map(const ndp_delta *of_call, const ndp_delta_task *t, void *work) {
    ndp_delta d = *of_call;
    delta_head h = {.l = take(&work, SQUARE), .a = take(&work, SQUARE)};
    float *k = take(&work, ndp_delta_rows(d.of_q)), *k_t = take(&work, ndp_delta_columns(d.of_q));
    float *kk = take(&work, SQUARE), *u = take(&work, ndp_delta_rows(d.of_v));
    float *read = take(&work, ndp_delta_rows(d.of_v)), *states = work;
    for (int i = 0; i < d.group; i++) {
        float *s = states + i * ndp_delta_state(&d);
        zero(s, ndp_delta_state(&d));
        for (int64_t j = 0; j < d.of_q.n && t->goes_on; j++)
            s[j * d.of_v.ld + d.v_dim + j] = 1;
    }
    for (int64_t first = t->first; first < t->end; first += d.chunk) {
        delta_chunk c = chunk_at(&d, t, first);
        c.k = k, c.k_t = k_t, c.kk = kk;
        chunk_begin(&d, t, &c, false);
        for (int i = 0; i < d.group; i++) {
            float *s = states + i * ndp_delta_state(&d);
            head_begin(&d, &c, t->key_head * d.group + i, &h, false);
            make_u(&d, &c, &h, s, read, u);
            scale_rows(&c, u, d.of_v, h.until);
            next_state(&d, &c, &h, u, s);
        }
    }
    for (int i = 0; i < d.group; i++)
        store_state(&d, states + i * ndp_delta_state(&d), state_row(&d, t, t->key_head * d.group + i), &d.states);
}

/* dS of the state before the chunk, from that after it, which is 0 where the rows end; d_o and r are changed. */
static void back_state(const ndp_delta *d, const delta_chunk *c, const delta_head *h, bool ends, float *d_o, float *r,
                       float *ds) {
    float by[CHUNK];
    if (!ends)
        rows_state(d, c, c->k, ds, r);
    if (!ends)
        scale_rows(c, r, d->of_v, h->until);
    triangle_t_rows(c, h->p, d->of_v, d_o, r, !ends);
    solve_back(c, h->a, d->of_v, r);
    for (int64_t i = 0; i < c->n; i++)
        by[i] = -h->since[i] * h->beta[i];
    scale_rows(c, d_o, d->of_v, h->since);
    scale_rows(c, r, d->of_v, by);
    if (!ends)
        scale_state(d, ds, h->since[c->n - 1]);
    add_to_state(d, c, c->q, d_o, ds, !ends);
    add_to_state(d, c, c->k, r, ds, true);
}

/* The first document of a piece, which goes on from the piece before. */
static void map_back(const ndp_delta *d, const ndp_delta_task *t, void *work) {
    delta_head h = {.l = take(&work, SQUARE), .a = take(&work, SQUARE), .p = take(&work, SQUARE)};
    float *q = take(&work, ndp_delta_rows(d->of_q)), *k = take(&work, ndp_delta_rows(d->of_q));
    float *k_t = take(&work, ndp_delta_columns(d->of_q)), *kk = take(&work, SQUARE), *qk = take(&work, SQUARE);
    float *d_o = take(&work, ndp_delta_rows(d->of_v)), *r = take(&work, ndp_delta_rows(d->of_v)), *states = work;
    zero(states, d->group * ndp_delta_state(d));
    for (int64_t first = t->first + (t->end - t->first - 1) / d->chunk * d->chunk; first >= t->first;
         first -= d->chunk) {
        delta_chunk c = chunk_at(d, t, first);
        c.q = q, c.k = k, c.k_t = k_t, c.kk = kk, c.qk = qk;
        chunk_begin(d, t, &c, true);
        for (int i = 0; i < d->group; i++) {
            head_begin(d, &c, t->key_head * d->group + i, &h, true);
            load_chunk(&c, &d->d_o, h.head, d->v_dim, d->of_v, d_o);
            back_state(d, &c, &h, first + c.n == t->end, d_o, r, states + i * ndp_delta_state(d));
        }
    }
    for (int i = 0; i < d->group; i++)
        store_state(d, states + i * ndp_delta_state(d), state_row(d, t, t->key_head * d->group + i), &d->states);
}

static void compose(const ndp_delta *d, const ndp_view *from, const ndp_view *a, int64_t row, bool back, float *s,
                    void *work) {
    float *old = take(&work, ndp_delta_state(d)), *by = take(&work, (int64_t)d->of_q.pad * d->of_q.ld);
    factor f = {by, back ? 1 : d->of_q.ld, back ? d->of_q.ld : 1};
    memcpy(old, s, (size_t)ndp_delta_state(d) * sizeof *s);
    load_state(d, a, row, d->of_v.n, d->of_q, by);
    load_state(d, from, row, 0, d->of_v, s);
    block_product(d->of_q.pad, d->of_v.pad / LANES, d->of_q.n, f, old, d->of_v.ld, s, d->of_v.ld, true);
}

const ndp_delta_kernels KERNELS = {forward, backward, map, map_back, compose};

#endif
