/* delta_rule, delta_rule_bwd and the maps of pieces: cuts a call into tasks (cpu_delta_rule.h), which threads take from
 * a counter. */
#include "ops/cpu/cpu_delta_rule.h"
#include "ops/cpu/cpu_kernels.h"
#include "ops/row_pieces.h"

#include <omp.h>

static ndp_delta_cols columns(int n) {
    int pad = (n + NDP_DELTA_BAND - 1) / NDP_DELTA_BAND * NDP_DELTA_BAND;
    return (ndp_delta_cols){n, pad, pad + NDP_DELTA_BAND};
}

/* Without operands. e: columns of states. */
static ndp_delta describe(const ndp_op_call *c, int64_t rows, int e) {
    int place = ndp_split_place(c->exec);
    return (ndp_delta){.of_q = columns(c->attr->head_dim),
                       .of_v = columns(e),
                       .v_dim = ndp_v_dim(c->attr),
                       .heads = c->attr->heads,
                       .group = ndp_delta_group(c->attr),
                       .rows = rows / ndp_row_pieces_here(c->attr),
                       .chunk = place ? NDP_DELTA_FEW_ROWS * place : NDP_DELTA_CHUNK};
}

/* `in`: q and what follows it. */
static ndp_delta describe_rule(const ndp_op_call *c, const ndp_view *in) {
    ndp_delta d = describe(c, in[0].rows, ndp_v_dim(c->attr));
    d.q = in[0], d.k = in[1], d.v = in[2], d.g = in[3], d.b = in[4], d.states = in[6];
    return d;
}

/* All threads or one: OpenMP makes a new team, and so allocates, whenever its size changes. A call of one key head may
 * have several documents. */
static int team(const ndp_op_call *c) { return c->exec->threads > 1 ? c->exec->threads : 1; }

/* In scratch memory: where documents and pieces begin, and where the last one ends; then the work memory of threads. */
static int64_t starts_floats(int64_t rows) { return (rows + 1 + 15) / 16 * 16; }

static size_t scratch_bytes(const ndp_op_call *c, int64_t rows, int64_t work) {
    return (size_t)(starts_floats(rows) + team(c) * work) * sizeof(float);
}

static size_t forward_scratch(const ndp_op_call *c) {
    ndp_delta d = describe_rule(c, &c->in[0]);
    return scratch_bytes(c, c->in[0].rows, ndp_delta_forward_floats(&d));
}

static size_t backward_scratch(const ndp_op_call *c) {
    ndp_delta d = describe_rule(c, &c->in[1]);
    return scratch_bytes(c, c->in[1].rows, ndp_delta_backward_floats(&d));
}

typedef void task_fn(const ndp_delta *, const ndp_delta_task *, void *);

/* A call, and which documents of a piece it needs: all; the last one; the first one, if it goes on. */
typedef struct delta_run {
    const ndp_op_call *c;
    const ndp_delta *d;
    const ndp_view *start;
    enum { EACH, LAST, FIRST } which;
    int64_t work;
    task_fn *task;
    int32_t *starts;
    int64_t documents;
} delta_run;

static void find_documents(delta_run *r) {
    int64_t piece = r->d->rows;
    r->documents = 0;
    for (int64_t t = 0; t < r->start->rows; t++)
        if (t % piece == 0 || ndp_delta_begins(r->start, t))
            r->starts[r->documents++] = (int32_t)t;
    r->starts[r->documents] = (int32_t)r->start->rows;
}

/* False: nothing is made of this document. */
static bool is_needed(const delta_run *r, const ndp_delta_task *t) {
    bool end = t->end % r->d->rows == 0;
    return r->which == EACH || (r->which == LAST ? end : t->first % r->d->rows == 0);
}

/* Where a piece begins with a document, nothing of it reaches the state before it. */
static void no_map_back(const delta_run *r, const ndp_delta_task *t) {
    const ndp_view *to = &r->d->states;
    int64_t n = (int64_t)r->d->group * r->d->of_q.n;
    int64_t row = (t->piece * r->d->heads + t->key_head * r->d->group) * r->d->of_q.n;
    for (int64_t i = 0; i < n; i++)
        memset((float *)to->data + (row + i) * to->ld, 0, (size_t)to->cols * sizeof(float));
}

static void run_task(const delta_run *r, int64_t i, void *work) {
    int64_t document = i / r->c->attr->kv_heads, first = r->starts[document];
    ndp_delta_task t = {i % r->c->attr->kv_heads, first, r->starts[document + 1], first / r->d->rows, false, false};
    bool goes_on = first % r->d->rows == 0 && !ndp_delta_begins(r->start, first);
    t.goes_on = goes_on && (r->which != EACH || ndp_present(&r->d->states));
    t.last = t.end % r->d->rows == 0 && ndp_present(&r->d->after);
    if (!is_needed(r, &t))
        return;
    if (r->which == FIRST && !goes_on)
        no_map_back(r, &t);
    else
        r->task(r->d, &t, work);
}

static ndp_status run_tasks(delta_run r) {
    const ndp_op_call *c = r.c;
    r.starts = c->scratch;
    find_documents(&r);
    int64_t tasks = r.documents * c->attr->kv_heads, next = 0;
    float *rooms = (float *)c->scratch + starts_floats(r.start->rows);
#pragma omp parallel num_threads(team(c)) if (team(c) > 1)
    for (int64_t i; (i = __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED)) < tasks;)
        run_task(&r, i, rooms + omp_get_thread_num() * r.work);
    return NDP_OK;
}

static ndp_status run_forward(const ndp_op_call *c) {
    ndp_delta d = describe_rule(c, &c->in[0]);
    d.o = c->out[0];
    return run_tasks(
        (delta_run){c, &d, &c->in[5], EACH, ndp_delta_forward_floats(&d), ndp_delta_best()->forward, NULL, 0});
}

const ndp_kernel ndp_cpu_delta_rule = {.run = run_forward, .scratch = forward_scratch};

static ndp_status run_backward(const ndp_op_call *c) {
    ndp_delta d = describe_rule(c, &c->in[1]);
    d.d_o = c->in[0], d.after = c->in[8];
    d.dq = c->out[0], d.dk = c->out[1], d.dv = c->out[2], d.dg = c->out[3], d.db = c->out[4];
    return run_tasks(
        (delta_run){c, &d, &c->in[6], EACH, ndp_delta_backward_floats(&d), ndp_delta_best()->backward, NULL, 0});
}

const ndp_kernel ndp_cpu_delta_rule_bwd = {.run = run_backward, .scratch = backward_scratch};

/* ---- maps of pieces ---- */

static ndp_delta describe_map(const ndp_op_call *c) {
    ndp_delta d = describe(c, c->in[0].rows, ndp_v_dim(c->attr) + c->attr->head_dim);
    d.k = c->in[0], d.v = c->in[1], d.g = c->in[2], d.b = c->in[3], d.states = c->out[0];
    return d;
}

static size_t map_scratch(const ndp_op_call *c) {
    ndp_delta d = describe_map(c);
    return scratch_bytes(c, c->in[0].rows, ndp_delta_map_floats(&d));
}

static ndp_status run_map(const ndp_op_call *c) {
    ndp_delta d = describe_map(c);
    return run_tasks((delta_run){c, &d, &c->in[4], LAST, ndp_delta_map_floats(&d), ndp_delta_best()->map, NULL, 0});
}

const ndp_kernel ndp_cpu_delta_map = {.run = run_map, .scratch = map_scratch};

static ndp_delta describe_map_back(const ndp_op_call *c) {
    ndp_delta d = describe(c, c->in[1].rows, ndp_v_dim(c->attr));
    d.d_o = c->in[0], d.q = c->in[1], d.k = c->in[2], d.g = c->in[3], d.b = c->in[4], d.states = c->out[0];
    return d;
}

static size_t map_back_scratch(const ndp_op_call *c) {
    ndp_delta d = describe_map_back(c);
    return scratch_bytes(c, c->in[1].rows, ndp_delta_map_floats(&d));
}

static ndp_status run_map_back(const ndp_op_call *c) {
    ndp_delta d = describe_map_back(c);
    return run_tasks(
        (delta_run){c, &d, &c->in[5], FIRST, ndp_delta_map_floats(&d), ndp_delta_best()->map_back, NULL, 0});
}

const ndp_kernel ndp_cpu_delta_map_back = {.run = run_map_back, .scratch = map_back_scratch};

static size_t states_scratch(const ndp_op_call *c) {
    ndp_delta d = describe(c, 0, ndp_v_dim(c->attr));
    return (size_t)(team(c) * (ndp_delta_state(&d) + ndp_delta_compose_floats(&d))) * sizeof(float);
}

/* State i of those that are made: head i % H of piece i / H. */
static void compose_state(const ndp_op_call *c, const ndp_delta *d, int64_t i, float *s) {
    const ndp_view *maps = &c->in[0], *backs = &c->in[1], *to = &c->out[0];
    bool back = ndp_present(backs);
    int64_t own = ndp_row_piece_number(c->attr, i / d->heads), n = ndp_row_pieces(c->attr), D = d->of_q.n;
    memset(s, 0, (size_t)ndp_delta_state(d) * sizeof *s);
    for (int64_t k = back ? n - 1 : 0; k != own; k += back ? -1 : 1)
        ndp_delta_best()->compose(d, back ? backs : maps, maps,
                                  (ndp_row_piece_at(c->attr, k) * d->heads + i % d->heads) * D, back, s,
                                  s + ndp_delta_state(d));
    for (int64_t r = 0; r < D; r++)
        memcpy((float *)to->data + (i * D + r) * to->ld, s + r * d->of_v.ld, (size_t)d->of_v.n * sizeof *s);
}

static ndp_status run_states(const ndp_op_call *c) {
    ndp_delta d = describe(c, 0, ndp_v_dim(c->attr));
    int64_t n = ndp_row_pieces_here(c->attr) * d.heads, next = 0;
    int64_t work = ndp_delta_state(&d) + ndp_delta_compose_floats(&d);
#pragma omp parallel num_threads(team(c)) if (team(c) > 1)
    for (int64_t i; (i = __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED)) < n;)
        compose_state(c, &d, i, (float *)c->scratch + omp_get_thread_num() * work);
    return NDP_OK;
}

const ndp_kernel ndp_cpu_delta_states = {.run = run_states, .scratch = states_scratch};
