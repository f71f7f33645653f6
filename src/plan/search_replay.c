/* A pipelined step by the table of its schedule, unit by unit (search_bounds.h). Each wait of it is one that programs
 * have too, and nothing takes longer than there, so no program is faster:
 *
 *     run of a unit     after its weights are gathered, and what another rank sends has arrived
 *     its last one      then waits for the sum of the gradient before it, and begins that of its own
 *
 * as step/gather.c, step/messages.c and step/reduce.c order them. Left out are the slower kernels beside what moves,
 * and waits for links between kinds of communication. */
#include "plan/search_bounds.h"

#include <math.h>
#include <stdlib.h>

/* ---- a table ---- */

/* A gather begins at most so many runs ahead of the one that reads it; weights that one of the next runs reads stay. */
enum { AHEAD = 3, SOON = 2 };

/* The runs of an action, of each of its units; a rank's next one. */
typedef enum run_phase { RUN_FORWARD, RUN_AGAIN, RUN_INPUT, RUN_WEIGHT } run_phase;
typedef struct unit_run {
    int action, unit; /* action: in the rank's row; its number of actions: there are no more runs */
    run_phase phase;
} unit_run;

typedef struct replay_rank {
    double now, starts[AHEAD]; /* of its last runs */
    double gathered;           /* when its last gather was over */
    double scatter, sum;       /* when the reductions under way are over */
    int scattered;             /* the unit whose gradient is scattered; NDP_NONE: none */
    unit_run at;
} replay_rank;

/* Seconds of an action of a stage with nothing between its units: before it reads what another stage sent, from then on
 * until what it sends is there, and after that. */
typedef struct action_time {
    double before, until, after;
} action_time;

typedef struct unit_replay {
    const ndp_pipeline *p;
    const ndp_cut_cost *u;
    const int *first;
    const ndp_replay_costs *c;
    replay_rank *ranks;
    double *forward, *gradient;        /* [stages][micro_batches]: when it was sent; negative: not yet */
    int *left;                         /* by stage: weight gradients to come */
    bool *there;                       /* by unit: its weights are gathered */
    action_time (*whole)[NDP_ACTIONS]; /* by stage, where there is nothing between units; else NULL */
} unit_replay;

/* ---- runs ---- */

static run_phase first_phase(const unit_replay *t, const ndp_stage_action *a, int unit) {
    return a->action == NDP_ACTION_FORWARD           ? RUN_FORWARD
           : a->action == NDP_ACTION_WEIGHT_GRADIENT ? RUN_WEIGHT
           : t->u->again[unit] > 0                   ? RUN_AGAIN
                                                     : RUN_INPUT;
}

static unit_run first_run(const unit_replay *t, int rank, int action) {
    const ndp_pipeline_row *row = &t->p->rows[rank];
    if (action == row->n)
        return (unit_run){.action = action};
    const ndp_stage_action *a = &row->actions[action];
    int unit = a->action == NDP_ACTION_FORWARD ? t->first[a->stage] : t->first[a->stage + 1] - 1;
    return (unit_run){action, unit, first_phase(t, a, unit)};
}

static unit_run run_after(const unit_replay *t, int rank, unit_run r) {
    const ndp_stage_action *a = &t->p->rows[rank].actions[r.action];
    if (r.phase == RUN_AGAIN || (r.phase == RUN_INPUT && a->action == NDP_ACTION_BACKWARD))
        return (unit_run){r.action, r.unit, r.phase + 1};
    int unit = r.unit + (r.phase == RUN_FORWARD ? 1 : -1);
    if (unit < t->first[a->stage] || unit >= t->first[a->stage + 1])
        return first_run(t, rank, r.action + 1);
    return (unit_run){r.action, unit, first_phase(t, a, unit)};
}

/* The embedding's weights are not read for its gradient. */
static bool reads(unit_run r) { return r.phase < RUN_INPUT || (r.phase == RUN_INPUT && r.unit > 0); }

/* ---- weights and gradients ---- */

static void gather(unit_replay *t, replay_rank *r) {
    if (t->c->gather && reads(r->at) && !t->there[r->at.unit]) {
        r->now = r->gathered = fmax(r->now, fmax(r->gathered, r->starts[0]) + t->c->gather[r->at.unit]);
        t->there[r->at.unit] = true;
    }
    for (int i = 0; i + 1 < AHEAD; i++)
        r->starts[i] = r->starts[i + 1];
    r->starts[AHEAD - 1] = r->now;
}

static void release_weights(unit_replay *t, int rank, unit_run r) {
    int unit = r.unit;
    bool soon = false;
    for (int i = 0; i < SOON && r.action < t->p->rows[rank].n; i++) {
        r = run_after(t, rank, r);
        soon = soon || (r.action < t->p->rows[rank].n && r.unit == unit && reads(r));
    }
    t->there[unit] = t->there[unit] && soon;
}

/* Waits for the sum and the scatter under way, and begins the sum of what was scattered. */
static void advance_reductions(const unit_replay *t, replay_rank *r) {
    r->now = fmax(r->now, fmax(r->sum, r->scatter));
    if (r->scattered != NDP_NONE)
        r->sum = r->now + t->c->sum[r->scattered];
}

static void reduce(const unit_replay *t, replay_rank *r, int unit) {
    if (!t->c->scatter || !t->u->reduced[unit])
        return;
    int before = r->scattered;
    advance_reductions(t, r);
    if (t->c->scatter[unit] == 0) { /* no shards */
        r->sum = r->now + t->c->sum[unit];
        return;
    }
    r->scatter = r->now + t->c->scatter[unit] + (before != NDP_NONE ? t->c->queue[before] : 0);
    r->scattered = unit;
}

/* ---- the replay ---- */

/* When what a run reads of another stage is there; negative: not yet. */
static double arrival(const unit_replay *t, const ndp_stage_action *a, unit_run r) {
    bool forward = r.phase == RUN_FORWARD;
    int from = forward ? a->stage - 1 : a->stage + 1,
        border = forward ? t->first[a->stage] : t->first[a->stage + 1] - 1;
    if (from < 0 || from == t->p->stages || r.unit != border || (!forward && r.phase != RUN_INPUT))
        return 0;
    size_t at = (size_t)from * (size_t)t->p->micro_batches + (size_t)a->micro_batch;
    double sent = (forward ? t->forward : t->gradient)[at];
    return sent < 0 || t->p->rank_of[from] == t->p->rank_of[a->stage] ? sent
                                                                      : sent + t->c->message[forward ? from : a->stage];
}

static double seconds_of(const ndp_cut_cost *u, unit_run r) {
    const ndp_unit_cost *k = &u->units[r.unit];
    return r.phase == RUN_FORWARD ? k->forward
           : r.phase == RUN_AGAIN ? u->again[r.unit]
           : r.phase == RUN_INPUT ? k->input_gradient - u->again[r.unit]
                                  : k->weight_gradient;
}

static void run_unit(unit_replay *t, int rank, const ndp_stage_action *a, double arrives) {
    replay_rank *r = &t->ranks[rank];
    int unit = r->at.unit, stage = a->stage;
    size_t at = (size_t)stage * (size_t)t->p->micro_batches + (size_t)a->micro_batch;
    gather(t, r);
    r->now = fmax(r->now, arrives) + seconds_of(t->u, r->at);
    if (r->at.phase == RUN_FORWARD && unit == t->first[stage + 1] - 1)
        t->forward[at] = r->now;
    if (r->at.phase == RUN_INPUT && unit == t->first[stage])
        t->gradient[at] = r->now;
    if (r->at.phase == RUN_WEIGHT && t->left[stage] == 1)
        reduce(t, r, unit);
    t->left[stage] -= r->at.phase == RUN_WEIGHT && unit == t->first[stage];
    if (t->c->reshard)
        release_weights(t, rank, r->at);
    r->at = run_after(t, rank, r->at);
}

static void time_stage(unit_replay *t, int stage) {
    const ndp_cut_cost *u = t->u;
    int first = t->first[stage], end = t->first[stage + 1];
    action_time *of = t->whole[stage];
    double input = 0, weight = 0;
    for (int i = first; i < end; i++) {
        of[NDP_ACTION_FORWARD].until += u->units[i].forward;
        input += u->units[i].input_gradient;
        weight += u->units[i].weight_gradient;
    }
    input -= u->again[end - 1];
    of[NDP_ACTION_INPUT_GRADIENT] = (action_time){u->again[end - 1], input, 0};
    of[NDP_ACTION_WEIGHT_GRADIENT].until = weight;
    double last = u->units[first].weight_gradient; /* the first unit's input gradient is sent before it */
    of[NDP_ACTION_BACKWARD] = (action_time){u->again[end - 1], input + weight - last, last};
}

static void run_action(unit_replay *t, replay_rank *r, const ndp_stage_action *a, double arrives) {
    const action_time *w = &t->whole[a->stage][a->action];
    size_t at = (size_t)a->stage * (size_t)t->p->micro_batches + (size_t)a->micro_batch;
    r->now = fmax(r->now + w->before, arrives) + w->until;
    if (a->action == NDP_ACTION_FORWARD)
        t->forward[at] = r->now;
    else if (a->action != NDP_ACTION_WEIGHT_GRADIENT)
        t->gradient[at] = r->now;
    r->now += w->after;
    r->at.action++;
}

/* As run_row, of whole actions. */
static bool run_actions(unit_replay *t, int rank) {
    const ndp_pipeline_row *row = &t->p->rows[rank];
    replay_rank *r = &t->ranks[rank];
    bool moved = false;
    for (; r->at.action < row->n; moved = true) {
        const ndp_stage_action *a = &row->actions[r->at.action];
        bool forward = a->action == NDP_ACTION_FORWARD;
        const unit_run reads = {r->at.action, forward ? t->first[a->stage] : t->first[a->stage + 1] - 1,
                                forward                                   ? RUN_FORWARD
                                : a->action == NDP_ACTION_WEIGHT_GRADIENT ? RUN_WEIGHT
                                                                          : RUN_INPUT};
        double arrives = arrival(t, a, reads);
        if (arrives < 0)
            break;
        run_action(t, r, a, arrives);
    }
    return moved;
}

/* Runs a rank's row as far as it goes; true: it moved. */
static bool run_row(unit_replay *t, int rank) {
    const ndp_pipeline_row *row = &t->p->rows[rank];
    replay_rank *r = &t->ranks[rank];
    bool moved = false;
    while (r->at.action < row->n) {
        const ndp_stage_action *a = &row->actions[r->at.action];
        double arrives = arrival(t, a, r->at);
        if (arrives < 0)
            break;
        run_unit(t, rank, a, arrives);
        moved = true;
    }
    return moved;
}

static double run_rows(unit_replay *t) {
    double makespan = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (int rank = 0; rank < t->p->ranks; rank++)
            moved |= t->whole ? run_actions(t, rank) : run_row(t, rank);
    }
    for (int rank = 0; rank < t->p->ranks; rank++) {
        replay_rank *r = &t->ranks[rank];
        advance_reductions(t, r);
        makespan = fmax(makespan, fmax(r->now, r->sum));
    }
    return makespan;
}

ndp_status ndp_replay_units(const ndp_pipeline *p, const ndp_cut_cost *u, const int *first, const ndp_replay_costs *c,
                            double *seconds) {
    size_t n = (size_t)p->stages * (size_t)p->micro_batches;
    unit_replay t = {.p = p, .u = u, .first = first, .c = c};
    t.ranks = calloc((size_t)p->ranks, sizeof *t.ranks);
    t.forward = malloc(2 * n * sizeof *t.forward);
    t.left = calloc((size_t)p->stages, sizeof *t.left);
    t.there = calloc((size_t)u->n_units, sizeof *t.there);
    bool whole = !c->gather && !c->scatter;
    t.whole = whole ? calloc((size_t)p->stages, sizeof *t.whole) : NULL;
    bool ok = t.ranks && t.forward && t.left && t.there && (t.whole || !whole);
    for (int s = 0; ok && whole && s < p->stages; s++)
        time_stage(&t, s);
    t.gradient = ok ? t.forward + n : NULL;
    for (size_t i = 0; ok && i < 2 * n; i++)
        t.forward[i] = -1;
    for (int s = 0; ok && s < p->stages; s++)
        t.left[s] = p->micro_batches;
    for (int r = 0; ok && r < p->ranks; r++)
        t.ranks[r].scattered = NDP_NONE, t.ranks[r].at = first_run(&t, r, 0);
    if (ok)
        *seconds = run_rows(&t);
    free(t.ranks);
    free(t.forward);
    free(t.left);
    free(t.there);
    free(t.whole);
    return NDP_MEMORY(ok, "to replay %d stages", p->stages);
}
