/* delta_decay, delta_rule and their gradients: one row after the other, as ops/delta_rule.c says. */
#include "ops/delta_rule.h"
#include "ops/ref/ref_kernels.h"
#include "ops/row_pieces.h"

#include <math.h>

/* delta_decay ---------------------------------------------------------------------------------------------------- */

/* a + dt; operand `a`, then the two rows. */
static double shifted(const ndp_op_call *c, int a, int64_t t, int64_t h) {
    return ndp_ref_in(c, a, t, h) + ndp_ref_in(c, a + 2, 0, h);
}

static double decay(const ndp_op_call *c, int a, int64_t t, int64_t h) {
    double x = shifted(c, a, t, h);
    return -exp(ndp_ref_in(c, a + 1, 0, h)) * (x > NDP_SOFTPLUS_LINEAR ? x : log1p(exp(x)));
}

static double delta_decay(const ndp_op_call *c, int64_t t, int64_t h) { return decay(c, 0, t, h); }

NDP_REF_EACH(delta_decay)

static double delta_decay_da(const ndp_op_call *c, int64_t t, int64_t h) {
    double x = shifted(c, 1, t, h), slope = x > NDP_SOFTPLUS_LINEAR ? 1 : 1 / (1 + exp(-x));
    return -ndp_ref_in(c, 0, t, h) * exp(ndp_ref_in(c, 2, 0, h)) * slope;
}

NDP_REF_EACH(delta_decay_da)

static double delta_decay_dlog(const ndp_op_call *c, int64_t row, int64_t h) {
    double sum = 0;
    (void)row; /* there is one */
    for (int64_t t = 0; t < c->in[0].rows; t++)
        sum += ndp_ref_in(c, 0, t, h) * decay(c, 1, t, h);
    return sum;
}

NDP_REF_EACH(delta_decay_dlog)

static double delta_decay_ddt(const ndp_op_call *c, int64_t row, int64_t h) {
    double sum = 0;
    (void)row;
    for (int64_t t = 0; t < c->in[0].rows; t++)
        sum += delta_decay_da(c, t, h);
    return sum;
}

NDP_REF_EACH(delta_decay_ddt)

/* delta_rule ----------------------------------------------------------------------------------------------------- */

/* Of a call, from operand q on. e: columns of states, of which v has as many or fewer; its others are 0. */
typedef struct delta_problem {
    const ndp_view *q, *k, *v, *g, *b, *start, *states; /* q: NULL: results are not made */
    int64_t d, e, v_dim, rows, group, heads, piece;     /* piece: rows of one */
} delta_problem;

static delta_problem problem_of(const ndp_op_call *c, int first) {
    const ndp_view *in = &c->in[first];
    return (delta_problem){.q = &in[0],
                           .k = &in[1],
                           .v = &in[2],
                           .g = &in[3],
                           .b = &in[4],
                           .start = &in[5],
                           .states = &in[6],
                           .d = c->attr->head_dim,
                           .e = ndp_v_dim(c->attr),
                           .v_dim = ndp_v_dim(c->attr),
                           .rows = in[0].rows,
                           .group = ndp_delta_group(c->attr),
                           .heads = c->attr->heads,
                           .piece = in[0].rows / ndp_row_pieces_here(c->attr)};
}

/* A row of a head. */
typedef struct delta_row {
    double *q, *k, *d, decay, beta;
} delta_row;

static double rsqrt_of(const delta_problem *p, const ndp_view *x, int64_t t, int64_t col) {
    double sum = NDP_DELTA_EPS;
    for (int64_t i = 0; i < p->d; i++)
        sum += ndp_view_get(x, t, col + i) * ndp_view_get(x, t, col + i);
    return 1 / sqrt(sum);
}

/* q^ or k^ */
static void load_unit(const delta_problem *p, const ndp_view *x, int64_t t, int64_t h, double by, double *to) {
    int64_t col = h / p->group * p->d;
    by *= rsqrt_of(p, x, t, col);
    for (int64_t i = 0; i < p->d; i++)
        to[i] = by * ndp_view_get(x, t, col + i);
}

static bool begins(const delta_problem *p, int64_t t) {
    return ndp_delta_begins(p->start, t) || (t % p->piece == 0 && !ndp_present(p->states));
}

/* The rows of a head in a matrix of states of all pieces, of that with row t. */
static int64_t state_row(const delta_problem *p, int64_t t, int64_t h) { return (t / p->piece * p->heads + h) * p->d; }

static void load_state(const delta_problem *p, const ndp_view *states, int64_t t, int64_t h, double *s) {
    for (int64_t i = 0; i < p->d * p->e; i++)
        s[i] = ndp_present(states) ? ndp_view_get(states, state_row(p, t, h) + i / p->e, i % p->e) : 0;
}

/* The state before row t, from that after the row before it. */
static void begin_row(const delta_problem *p, int64_t t, int64_t h, double *s) {
    if (begins(p, t))
        memset(s, 0, (size_t)(p->d * p->e) * sizeof *s);
    else if (t % p->piece == 0)
        load_state(p, p->states, t, h, s);
}

/* The state `s` before row t becomes that after it; what the row has is in r, whose q, k, d have room. */
static void step(const delta_problem *p, int64_t t, int64_t h, double *s, delta_row *r) {
    r->decay = exp(ndp_view_get(p->g, t, h)), r->beta = 1 / (1 + exp(-ndp_view_get(p->b, t, h)));
    if (p->q)
        load_unit(p, p->q, t, h, 1 / sqrt((double)p->d), r->q);
    load_unit(p, p->k, t, h, 1, r->k);
    for (int64_t j = 0; j < p->e; j++) {
        double read = 0;
        for (int64_t i = 0; i < p->d; i++)
            read += (s[i * p->e + j] *= r->decay) * r->k[i];
        r->d[j] = r->beta * ((j < p->v_dim ? ndp_view_get(p->v, t, h * p->v_dim + j) : 0) - read);
        for (int64_t i = 0; i < p->d; i++)
            s[i * p->e + j] += r->k[i] * r->d[j];
    }
}

/* Doubles of what a row has. */
static int64_t row_size(const delta_problem *p) { return 2 * p->d + p->e; }
static void row_in(const delta_problem *p, delta_row *r, double *room) {
    r->q = room, r->k = room + p->d, r->d = room + 2 * p->d;
}

static size_t delta_rule_scratch(const ndp_op_call *c) {
    delta_problem p = problem_of(c, 0);
    return (size_t)(p.d * p.e + row_size(&p)) * sizeof(double);
}

static ndp_status run_delta_rule(const ndp_op_call *c) {
    delta_problem p = problem_of(c, 0);
    double *s = c->scratch;
    delta_row r;
    row_in(&p, &r, s + p.d * p.e);
    for (int64_t h = 0; h < c->attr->heads; h++)
        for (int64_t t = 0; t < p.rows; t++) {
            begin_row(&p, t, h, s);
            step(&p, t, h, s, &r);
            for (int64_t j = 0; j < p.e; j++) {
                double o = 0;
                for (int64_t i = 0; i < p.d; i++)
                    o += s[i * p.e + j] * r.q[i];
                ndp_view_set(&c->out[0], t, h * p.e + j, o);
            }
        }
    return NDP_OK;
}

const ndp_kernel ndp_ref_delta_rule = {.run = run_delta_rule, .scratch = delta_rule_scratch};

/* delta_rule_bwd ------------------------------------------------------------------------------------------------- */

/* Rows whose states are kept; of others only those before each block of so many. */
enum { KEPT = 64 };

/* dq^ and dk^ of a key head are [rows, D]; `blocks` the states before each block, `states` those after each row of one
 * block; ds the gradient of the state, dd that of the row's d. */
typedef struct delta_bwd {
    delta_problem p;
    const ndp_op_call *c;
    double *dq, *dk, *blocks, *states, *ds, *dd, *room;
} delta_bwd;

static int64_t blocks_of(const delta_problem *p) { return (p->rows + KEPT - 1) / KEPT; }

static size_t delta_rule_bwd_scratch(const ndp_op_call *c) {
    delta_problem p = problem_of(c, 1);
    int64_t states = blocks_of(&p) + KEPT + 1;
    return (size_t)(2 * p.rows * p.d + states * p.d * p.e + p.e + KEPT * row_size(&p)) * sizeof(double);
}

/* dS gets the part of the row's own result, and dd = dS^T k^ then. Returns dd . d. */
static double output_backward(const delta_bwd *w, const delta_row *r, int64_t t, int64_t h, const double *after) {
    const delta_problem *p = &w->p;
    double along = 0;
    for (int64_t j = 0; j < p->e; j++) {
        double d_o = ndp_view_get(&w->c->in[0], t, h * p->e + j);
        w->dd[j] = 0;
        for (int64_t i = 0; i < p->d; i++) {
            double *ds = &w->ds[i * p->e + j];
            *ds += r->q[i] * d_o;
            w->dq[t * p->d + i] += after[i * p->e + j] * d_o;
            w->dk[t * p->d + i] += *ds * r->d[j];
            w->dd[j] += *ds * r->k[i];
        }
        along += w->dd[j] * r->d[j];
        if (ndp_present(&w->c->out[2]))
            ndp_view_set(&w->c->out[2], t, h * p->e + j, r->beta * w->dd[j]);
    }
    return along;
}

/* From the gradient of the state after row t to that of the state before it. */
static void row_backward(const delta_bwd *w, const delta_row *r, int64_t t, int64_t h, const double *after) {
    const delta_problem *p = &w->p;
    const ndp_view *dg = &w->c->out[3], *db = &w->c->out[4];
    double along = output_backward(w, r, t, h, after), by_decay = 0;
    bool first = begins(p, t); /* nothing is decayed, though a fused product may leave its rounding */
    for (int64_t i = 0; i < p->d; i++)
        for (int64_t j = 0; j < p->e; j++) {
            double decayed = first ? 0 : after[i * p->e + j] - r->k[i] * r->d[j], read = -r->beta * w->dd[j];
            double *ds = &w->ds[i * p->e + j];
            w->dk[t * p->d + i] += decayed * read;
            *ds += r->k[i] * read;
            by_decay += *ds * decayed;
            *ds = first ? 0 : *ds * r->decay;
        }
    if (ndp_present(dg))
        ndp_view_set(dg, t, h, by_decay);
    if (ndp_present(db)) /* d has the factor sigmoid(b) */
        ndp_view_set(db, t, h, along * (1 - r->beta));
}

static void block_backward(const delta_bwd *w, int64_t block, int64_t h) {
    const delta_problem *p = &w->p;
    int64_t first = block * KEPT, n = p->rows - first < KEPT ? p->rows - first : KEPT, size = p->d * p->e;
    delta_row rows[KEPT];
    for (int64_t i = 0; i < n; i++) {
        double *after = w->states + i * size;
        memcpy(after, i == 0 ? w->blocks + block * size : after - size, (size_t)size * sizeof(double));
        row_in(p, &rows[i], w->room + i * row_size(p));
        begin_row(p, first + i, h, after);
        step(p, first + i, h, after, &rows[i]);
    }
    for (int64_t i = n - 1; i >= 0; i--) {
        if ((first + i + 1) % p->piece == 0)
            load_state(p, &w->c->in[8], first + i, h, w->ds);
        row_backward(w, &rows[i], first + i, h, w->states + i * size);
    }
}

static void head_backward(const delta_bwd *w, int64_t h) {
    const delta_problem *p = &w->p;
    size_t bytes = (size_t)(p->d * p->e) * sizeof(double);
    delta_row r;
    row_in(p, &r, w->room);
    memset(w->states, 0, bytes);
    for (int64_t t = 0; t < p->rows; t++) {
        if (t % KEPT == 0)
            memcpy(w->blocks + t / KEPT * p->d * p->e, w->states, bytes);
        begin_row(p, t, h, w->states);
        step(p, t, h, w->states, &r);
    }
    for (int64_t block = blocks_of(p) - 1; block >= 0; block--)
        block_backward(w, block, h);
}

/* dx of a row of a key head from dx^, x^ = by x rsqrt: by rsqrt (dx^ - x (x . dx^) rsqrt^2). */
static void unit_backward(const delta_bwd *w, const ndp_view *x, const double *d_unit, double by, int64_t t,
                          int64_t col, const ndp_view *dx) {
    const delta_problem *p = &w->p;
    double scale = rsqrt_of(p, x, t, col), along = 0;
    for (int64_t i = 0; i < p->d; i++)
        along += ndp_view_get(x, t, col + i) * d_unit[i];
    for (int64_t i = 0; i < p->d && ndp_present(dx); i++)
        ndp_view_set(dx, t, col + i, by * scale * (d_unit[i] - ndp_view_get(x, t, col + i) * along * scale * scale));
}

static ndp_status run_delta_rule_bwd(const ndp_op_call *c) {
    delta_bwd w = {.p = problem_of(c, 1), .c = c, .dq = c->scratch};
    const delta_problem *p = &w.p;
    int64_t rows = p->rows * p->d, size = p->d * p->e;
    w.dk = w.dq + rows, w.blocks = w.dk + rows, w.states = w.blocks + blocks_of(p) * size;
    w.ds = w.states + KEPT * size, w.dd = w.ds + size, w.room = w.dd + p->e;
    for (int64_t key = 0; key < c->attr->kv_heads; key++) {
        memset(w.dq, 0, (size_t)(2 * rows) * sizeof(double));
        for (int64_t h = key * p->group; h < (key + 1) * p->group; h++)
            head_backward(&w, h);
        for (int64_t t = 0; t < p->rows; t++) {
            unit_backward(&w, p->q, w.dq + t * p->d, 1 / sqrt((double)p->d), t, key * p->d, &c->out[0]);
            unit_backward(&w, p->k, w.dk + t * p->d, 1, t, key * p->d, &c->out[1]);
        }
    }
    return NDP_OK;
}

const ndp_kernel ndp_ref_delta_rule_bwd = {.run = run_delta_rule_bwd, .scratch = delta_rule_bwd_scratch};

/* maps of pieces ------------------------------------------------------------------------------------------------- */

static void store_state(const delta_problem *p, const double *s, int64_t t, int64_t h, const ndp_view *to) {
    for (int64_t i = 0; i < p->d * p->e; i++)
        ndp_view_set(to, state_row(p, t, h) + i / p->e, i % p->e, s[i]);
}

/* Of (k, v, g, b, start): states have E + D columns. */
static delta_problem map_problem(const ndp_op_call *c) {
    const ndp_view *in = c->in;
    return (delta_problem){.k = &in[0],
                           .v = &in[1],
                           .g = &in[2],
                           .b = &in[3],
                           .start = &in[4],
                           .d = c->attr->head_dim,
                           .e = ndp_v_dim(c->attr) + c->attr->head_dim,
                           .v_dim = ndp_v_dim(c->attr),
                           .rows = in[0].rows,
                           .group = ndp_delta_group(c->attr),
                           .heads = c->attr->heads,
                           .piece = in[0].rows / ndp_row_pieces_here(c->attr)};
}

static size_t delta_map_scratch(const ndp_op_call *c) {
    delta_problem p = map_problem(c);
    return (size_t)(p.d * p.e + row_size(&p)) * sizeof(double);
}

static ndp_status run_delta_map(const ndp_op_call *c) {
    delta_problem p = map_problem(c);
    double *s = c->scratch;
    delta_row r;
    row_in(&p, &r, s + p.d * p.e);
    for (int64_t h = 0; h < c->attr->heads; h++)
        for (int64_t t = 0; t < p.rows; t++) {
            if (t % p.piece == 0 || ndp_delta_begins(p.start, t))
                memset(s, 0, (size_t)(p.d * p.e) * sizeof *s);
            for (int64_t i = 0; i < p.d && t % p.piece == 0 && !ndp_delta_begins(p.start, t); i++)
                s[i * p.e + p.v_dim + i] = 1;
            step(&p, t, h, s, &r);
            if ((t + 1) % p.piece == 0)
                store_state(&p, s, t, h, &c->out[0]);
        }
    return NDP_OK;
}

const ndp_kernel ndp_ref_delta_map = {.run = run_delta_map, .scratch = delta_map_scratch};

/* Of (do, q, k, g, b, start). */
static delta_problem back_problem(const ndp_op_call *c) {
    const ndp_view *in = c->in;
    return (delta_problem){.q = &in[1],
                           .k = &in[2],
                           .g = &in[3],
                           .b = &in[4],
                           .start = &in[5],
                           .d = c->attr->head_dim,
                           .e = ndp_v_dim(c->attr),
                           .rows = in[1].rows,
                           .group = ndp_delta_group(c->attr),
                           .heads = c->attr->heads,
                           .piece = in[1].rows / ndp_row_pieces_here(c->attr)};
}

static size_t delta_map_back_scratch(const ndp_op_call *c) {
    delta_problem p = back_problem(c);
    return (size_t)(p.d * p.e + row_size(&p)) * sizeof(double);
}

/* From the gradient of the state after row t to that before it. */
static void row_back(const ndp_op_call *c, const delta_problem *p, int64_t t, int64_t h, double *ds, delta_row *r) {
    r->decay = exp(ndp_view_get(p->g, t, h)), r->beta = 1 / (1 + exp(-ndp_view_get(p->b, t, h)));
    load_unit(p, p->q, t, h, 1 / sqrt((double)p->d), r->q);
    load_unit(p, p->k, t, h, 1, r->k);
    for (int64_t j = 0; j < p->e; j++) {
        double d_o = ndp_view_get(&c->in[0], t, h * p->e + j), dd = 0;
        for (int64_t i = 0; i < p->d; i++)
            dd += (ds[i * p->e + j] += r->q[i] * d_o) * r->k[i];
        for (int64_t i = 0; i < p->d; i++)
            ds[i * p->e + j] = r->decay * (ds[i * p->e + j] - r->k[i] * r->beta * dd);
    }
}

static ndp_status run_delta_map_back(const ndp_op_call *c) {
    delta_problem p = back_problem(c);
    double *ds = c->scratch;
    delta_row r;
    row_in(&p, &r, ds + p.d * p.e);
    for (int64_t h = 0; h < c->attr->heads; h++)
        for (int64_t first = 0; first < p.rows; first += p.piece) {
            int64_t end = first;
            while (end < first + p.piece && !ndp_delta_begins(p.start, end))
                end++;
            memset(ds, 0, (size_t)(p.d * p.e) * sizeof *ds);
            for (int64_t t = end - 1; t >= first; t--)
                row_back(c, &p, t, h, ds, &r);
            store_state(&p, ds, first, h, &c->out[0]);
        }
    return NDP_OK;
}

const ndp_kernel ndp_ref_delta_map_back = {.run = run_delta_map_back, .scratch = delta_map_back_scratch};

/* s := U + A s, of head h and piece `number`; or V + A^T s. */
static void compose(const ndp_op_call *c, int64_t number, int64_t h, double *s, double *old) {
    const ndp_view *maps = &c->in[0], *backs = &c->in[1];
    int64_t d = c->attr->head_dim, e = ndp_v_dim(c->attr);
    int64_t row = (ndp_row_piece_at(c->attr, number) * c->attr->heads + h) * d;
    memcpy(old, s, (size_t)(d * e) * sizeof *s);
    for (int64_t i = 0; i < d; i++)
        for (int64_t j = 0; j < e; j++) {
            double sum = ndp_view_get(ndp_present(backs) ? backs : maps, row + i, j);
            for (int64_t l = 0; l < d; l++)
                sum += ndp_view_get(maps, row + (ndp_present(backs) ? l : i), e + (ndp_present(backs) ? i : l)) *
                       old[l * e + j];
            s[i * e + j] = sum;
        }
}

static size_t delta_states_scratch(const ndp_op_call *c) {
    return (size_t)(2 * c->attr->head_dim * ndp_v_dim(c->attr)) * sizeof(double);
}

static ndp_status run_delta_states(const ndp_op_call *c) {
    int64_t d = c->attr->head_dim, e = ndp_v_dim(c->attr), heads = c->attr->heads;
    double *s = c->scratch, *old = s + d * e;
    for (int64_t b = 0; b < ndp_row_pieces_here(c->attr); b++)
        for (int64_t h = 0; h < heads; h++) {
            int64_t own = ndp_row_piece_number(c->attr, b);
            memset(s, 0, (size_t)(d * e) * sizeof *s);
            if (ndp_present(&c->in[1]))
                for (int64_t n = ndp_row_pieces(c->attr) - 1; n > own; n--)
                    compose(c, n, h, s, old);
            else
                for (int64_t n = 0; n < own; n++)
                    compose(c, n, h, s, old);
            for (int64_t i = 0; i < d * e; i++)
                ndp_view_set(&c->out[0], (b * heads + h) * d + i / e, i % e, s[i]);
        }
    return NDP_OK;
}

const ndp_kernel ndp_ref_delta_states = {.run = run_delta_states, .scratch = delta_states_scratch};
