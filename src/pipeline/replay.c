/* Running a table in time. Ranks take turns: each runs its row until an action reads something that is not computed
 * yet. If a whole turn moves no rank, those that are left wait for each other. */
#include "pipeline/pipeline.h"

#include <stdlib.h>

typedef struct pipeline_replay {
    const ndp_pipeline *s;
    const ndp_pipeline_costs *costs;
    double *forward, *input_gradient; /* [stages][micro_batches]: when it ended; negative: not yet */
    int *at;                          /* [ranks]: the next action of each row */
} pipeline_replay;

static size_t place(const ndp_pipeline *s, int stage, int micro_batch) {
    return (size_t)stage * (size_t)s->micro_batches + (size_t)micro_batch;
}

/* The stage whose result another rank, or this one, has to send for the action; -1: it reads only what its own row
 * made. */
static int source_of(const ndp_pipeline *s, const ndp_stage_action *a) {
    if (a->action == NDP_ACTION_WEIGHT_GRADIENT)
        return -1;
    if (a->action == NDP_ACTION_FORWARD)
        return a->stage - 1;
    return a->stage + 1 < s->stages ? a->stage + 1 : -1;
}

/* When an action's operands are there; negative: not yet. */
static double ready_at(const pipeline_replay *r, const ndp_stage_action *a) {
    int source = source_of(r->s, a);
    if (source < 0)
        return 0;
    const double *ends = a->action == NDP_ACTION_FORWARD ? r->forward : r->input_gradient;
    double end = ends[place(r->s, source, a->micro_batch)];
    bool travels = r->s->rank_of[source] != r->s->rank_of[a->stage];
    return end < 0 ? end : end + (travels ? r->costs->message : 0);
}

static double cost_of(const ndp_pipeline_costs *c, const ndp_stage_action *a) {
    double input = c->input_gradient[a->stage], weight = c->weight_gradient[a->stage];
    switch (a->action) {
    case NDP_ACTION_FORWARD:
        return c->forward[a->stage];
    case NDP_ACTION_INPUT_GRADIENT:
        return input;
    case NDP_ACTION_WEIGHT_GRADIENT:
        return weight;
    default:
        return input + weight;
    }
}

/* Runs a rank's row as far as it goes; true: it moved. */
static bool run_row(pipeline_replay *r, int rank, ndp_pipeline_times *t) {
    const ndp_pipeline_row *row = &r->s->rows[rank];
    int first = r->at[rank];
    for (int i = first; i < row->n; i = ++r->at[rank]) {
        const ndp_stage_action *a = &row->actions[i];
        double ready = ready_at(r, a), cost = cost_of(r->costs, a), free_at = i ? t->rows[rank][i - 1].end : 0;
        if (ready < 0)
            break;
        double start = ready > free_at ? ready : free_at, end = start + cost;
        t->rows[rank][i] = (ndp_action_time){start, end};
        t->idle[rank] -= cost;
        t->makespan = end > t->makespan ? end : t->makespan;
        if (a->action == NDP_ACTION_FORWARD)
            r->forward[place(r->s, a->stage, a->micro_batch)] = end;
        else if (a->action != NDP_ACTION_WEIGHT_GRADIENT)
            r->input_gradient[place(r->s, a->stage, a->micro_batch)] = end;
    }
    return r->at[rank] > first;
}

/* The action that makes what `a` waits for. */
static const ndp_stage_action *maker_of(const ndp_pipeline *s, const ndp_stage_action *a) {
    int source = source_of(s, a);
    const ndp_pipeline_row *row = &s->rows[s->rank_of[source]];
    for (const ndp_stage_action *b = row->actions; b < row->actions + row->n; b++)
        if (b->stage == source && b->micro_batch == a->micro_batch && b->action != NDP_ACTION_WEIGHT_GRADIENT &&
            (b->action == NDP_ACTION_FORWARD) == (a->action == NDP_ACTION_FORWARD))
            return b;
    return NULL;
}

/* Names one blocked cell of the cycle: following what blocked ranks wait for leads into it after at most `ranks` steps.
 */
static ndp_status deadlock(const pipeline_replay *r) {
    const ndp_pipeline *s = r->s;
    int rank = 0;
    while (r->at[rank] == s->rows[rank].n)
        rank++;
    const ndp_stage_action *a = NULL, *b = NULL;
    for (int i = 0; i <= s->ranks; i++) {
        a = &s->rows[rank].actions[r->at[rank]];
        b = maker_of(s, a);
        if (!b || i == s->ranks)
            break;
        rank = s->rank_of[b->stage];
    }
    int other = b ? s->rank_of[b->stage] : rank;
    if (!b || other == rank)
        return NDP_FAIL(NDP_EINVAL, "%s: row %d, column %d, '%d%c%d': deadlock: it waits for '%d%c%d', which %s",
                        s->name, rank, a->column, a->stage, ndp_action_letter(a->action), a->micro_batch,
                        source_of(s, a), a->action == NDP_ACTION_FORWARD ? 'F' : 'I', a->micro_batch,
                        b ? "comes later in the row" : "no row has");
    const ndp_stage_action *first = &s->rows[other].actions[r->at[other]];
    return NDP_FAIL(
        NDP_EINVAL,
        "%s: row %d, column %d, '%d%c%d': deadlock: it waits for '%d%c%d' in row %d, column %d; before that comes "
        "'%d%c%d' in column %d, which waits as well, in a cycle of ranks",
        s->name, rank, a->column, a->stage, ndp_action_letter(a->action), a->micro_batch, b->stage,
        ndp_action_letter(b->action), b->micro_batch, other, b->column, first->stage, ndp_action_letter(first->action),
        first->micro_batch, first->column);
}

static ndp_status run_rows(pipeline_replay *r, ndp_pipeline_times *t) {
    const ndp_pipeline *s = r->s;
    for (size_t i = 0; i < (size_t)s->stages * (size_t)s->micro_batches; i++)
        r->forward[i] = r->input_gradient[i] = -1;
    bool moved = true, left = true;
    while (moved && left) {
        moved = left = false;
        for (int rank = 0; rank < s->ranks; rank++) {
            moved |= run_row(r, rank, t);
            left |= r->at[rank] < s->rows[rank].n;
        }
    }
    if (left)
        return deadlock(r);
    for (int rank = 0; rank < s->ranks; rank++)
        t->idle[rank] += t->makespan;
    return NDP_OK;
}

static bool make_times(const ndp_pipeline *s, ndp_pipeline_times *t) {
    size_t n = 1;
    for (int rank = 0; rank < s->ranks; rank++)
        n += (size_t)s->rows[rank].n;
    *t = (ndp_pipeline_times){.rows = calloc((size_t)s->ranks, sizeof *t->rows),
                              .idle = calloc((size_t)s->ranks, sizeof *t->idle)};
    ndp_action_time *all = calloc(n, sizeof *all);
    if (!t->rows || !t->idle || !all) {
        free(all);
        return false;
    }
    for (int rank = 0; rank < s->ranks; all += s->rows[rank++].n)
        t->rows[rank] = all;
    return true;
}

ndp_status ndp_pipeline_replay(const ndp_pipeline *s, const ndp_pipeline_costs *costs, ndp_pipeline_times *out) {
    NDP_CHECK(s->ranks > 0, "the schedule %s has no rows", s->name ? s->name : "");
    ndp_pipeline_times t;
    bool made = make_times(s, &t);
    size_t n = (size_t)s->stages * (size_t)s->micro_batches;
    pipeline_replay r = {.s = s, .costs = costs, .at = calloc((size_t)s->ranks, sizeof *r.at)};
    r.forward = malloc(n * sizeof *r.forward);
    r.input_gradient = malloc(n * sizeof *r.input_gradient);
    ndp_status st =
        made && r.at && r.forward && r.input_gradient
            ? run_rows(&r, &t)
            : NDP_FAIL(NDP_ENOMEM, "not enough memory to replay the schedule %s of %d stages and %d micro-batches",
                       s->name, s->stages, s->micro_batches);
    free(r.at);
    free(r.forward);
    free(r.input_gradient);
    if (st == NDP_OK)
        *out = t;
    else
        ndp_pipeline_times_release(&t);
    return st;
}

void ndp_pipeline_times_release(ndp_pipeline_times *t) {
    if (t->rows)
        free(t->rows[0]);
    free(t->rows);
    free(t->idle);
    *t = (ndp_pipeline_times){0};
}
