/* The simulation. The rank whose time is the earliest walks its calls until another is earlier, or it blocks in a wait
 * whose end is not known yet. So operations begin in the order of time, which is the order in which links take them;
 * but for links, what has happened on a rank stays as it is, whatever others do. A blocked rank is in the list of what
 * it is blocked on (simulate_operations.c), and advances again when that has happened, so the work is linear in the
 * number of calls. Lists that are one rank's own matter (lone_lists.h) are run at once. */
#include "step/simulate_parts.h"

#include <math.h>
#include <stdlib.h>

enum { LONE_LISTS = NDP_MAX_GRAPHS * NDP_PHASES };

/* ---- the order of ranks ---- */

/* Of two ranks at one time the first one is the earlier. */
static bool earlier(const simulation *s, int a, int b) {
    return s->ranks[a].due < s->ranks[b].due || (s->ranks[a].due == s->ranks[b].due && a < b);
}

/* Sets its place in the heap, which it leaves empty at `at`, or one before. */
static void rise(simulation *s, int i, int at) {
    for (; at > 0 && earlier(s, i, s->ready[(at - 1) / 2]); at = (at - 1) / 2)
        s->ready[at] = s->ready[(at - 1) / 2];
    s->ready[at] = i;
}

void ndp_simulated_add_ready(simulation *s, int i) { rise(s, i, s->n_ready++); }

/* Whether another rank is to advance before rank i does at a time. */
static bool others_first(const simulation *s, int i, double when) {
    s->ranks[i].due = when;
    return s->n_ready > 0 && earlier(s, s->ready[0], i);
}

static int take_earliest(simulation *s) {
    int first = s->ready[0], last = s->ready[--s->n_ready], at = 0;
    for (int child; (child = 2 * at + 1) < s->n_ready; at = child) {
        child += child + 1 < s->n_ready && earlier(s, s->ready[child + 1], s->ready[child]);
        if (earlier(s, last, s->ready[child]))
            break;
        s->ready[at] = s->ready[child];
    }
    s->ready[at] = last;
    return first;
}

/* ---- ranks ---- */

/* The list that a rank is at, if it is run at once; else NULL. */
static ndp_lone_list *lone_of(const simulation *s, int i) {
    const simulated_rank *r = &s->ranks[i];
    const ndp_program *p = track(s, i)->program;
    if (!s->lone || !r->in || r->in->code != NDP_DO_RUN)
        return NULL;
    int graph = p->opts.model->units[r->in->unit].graph;
    return track(s, i)->lone[graph][r->in->phase] ? &s->lone[i][graph * NDP_PHASES + r->in->phase] : NULL;
}

void ndp_simulated_take_up(simulation *s, int k, int i) {
    simulated_rank *r = &s->ranks[k];
    int at = 0;
    if (!r->put_off)
        return;
    r->place = ndp_lone_list_run(lone_of(s, k), r->place, s->ranks[i].t.now, k < i, true, &r->t);
    r->put_off = false;
    r->due = r->t.now;
    while (s->ready[at] != k)
        at++;
    rise(s, k, at);
}

static void tell(const simulation *s, int i, const ndp_call *call, double seconds) {
    if (s->costs->spent && seconds > 0)
        s->costs->spent(s->costs->into, i, s->ranks[i].in, call, seconds, 1);
}

/* Runs one call; false: the rank is blocked in it. */
static bool run_call(simulation *s, int i, const ndp_call *call, double *waited) {
    simulated_rank *r = &s->ranks[i];
    double start = r->t.now, end = start;
    if (call->kind == NDP_CALL_KERNEL) {
        r->t.now = ndp_kernel_end(&r->t, s->costs->seconds(s->costs->user, track(s, i)->program, r->in, call),
                                  s->costs->beside);
        tell(s, i, call, r->t.now - start);
        return true;
    }
    if (call->kind == NDP_CALL_BEGIN)
        ndp_simulated_begin(s, i, call);
    else if (!ndp_simulated_wait_ends(s, i, &end))
        return false;
    if (s->events[i])
        s->events[i][r->event] = (ndp_instr_time){.start = start, .end = end};
    r->event++;
    r->t.now = end;
    r->copied = -1;
    *waited += end - start;
    tell(s, i, call, end - start);
    if (call->kind == NDP_CALL_WAIT)
        ndp_simulated_wake(s, &r->senders);
    return true;
}

static void tell_leaves(const simulation *s, int i) {
    const simulated_rank *r = &s->ranks[i];
    double until[NDP_UNTIL] = {r->t.now, fmax(r->t.now, r->t.moves)};
    for (int l = 0; l < NDP_BUSY_LINKS; l++)
        until[2 + l] = fmax(r->t.now, r->t.free[l]);
    s->costs->leaves(s->costs->into, i, until);
}

/* Takes a rank's next instruction. */
static void next_instr(simulation *s, int i) {
    simulated_rank *r = &s->ranks[i];
    const ndp_program *p = track(s, i)->program;
    int range = r->at.range;
    r->in = ndp_program_next(p, s->costs->visits, &r->at) ? &p->instrs[r->at.at] : NULL;
    r->call = (ndp_walk){0};
    if (s->costs->leaves && range == 0 && r->at.range > 0)
        tell_leaves(s, i);
    if (r->in && s->times)
        s->times[i][r->at.executed].start = r->t.now;
}

/* Runs the list alone that a rank is at. False: it is put off until no other rank is earlier than its end, since
 * what others begin may change it. */
static bool run_lone(simulation *s, int i, ndp_lone_list *l) {
    simulated_rank *r = &s->ranks[i];
    if (r->pending > 0 && !r->put_off) {
        ndp_streams then = r->t;
        ndp_lone_list_run(l, r->place, INFINITY, false, false, &then);
        r->put_off = others_first(s, i, then.now);
        if (r->put_off) {
            ndp_simulated_add_ready(s, i);
            return false;
        }
    }
    ndp_lone_list_run(l, r->place, INFINITY, false, true, &r->t);
    l->times++;
    r->put_off = false;
    r->place = 0;
    return true;
}

/* Nothing that other ranks do before it ends changes a kernel, but for what they begin as well. */
static bool is_alone(const simulation *s, const simulated_rank *r, const ndp_call *call) {
    return s->lone && r->pending == 0 && call->kind == NDP_CALL_KERNEL;
}

/* Runs one rank until it blocks, or another is earlier. */
static void advance(simulation *s, int i) {
    simulated_rank *r = &s->ranks[i];
    for (; r->in; next_instr(s, i)) {
        ndp_lone_list *lone = lone_of(s, i);
        if (lone && !run_lone(s, i, lone))
            return;
        if (lone)
            continue;
        ndp_instr_time none = {0}, *time = s->times ? &s->times[i][r->at.executed] : &none;
        double waited = 0; /* of an instruction that is one call, its own time says it */
        int n;
        ndp_repeats repeats;
        const ndp_call *calls = ndp_instr_calls(track(s, i)->program, r->in, &n, &repeats);
        do {
            if (!is_alone(s, r, &calls[r->call.at]) && others_first(s, i, r->t.now)) {
                ndp_simulated_add_ready(s, i);
                return;
            }
            if (!run_call(s, i, &calls[r->call.at], r->in->code == NDP_DO_RUN ? &time->waited : &waited))
                return;
        } while (ndp_walk_next(&repeats, n, NDP_USUAL_ITERATIONS, &r->call));
        time->end = r->t.now;
    }
}

static ndp_status run_all(simulation *s) {
    for (int i = s->tracks.n - 1; i >= 0; i--) {
        s->ranks[i].copied = -1;
        s->ranks[i].at = NDP_WALK_START;
        next_instr(s, i);
        ndp_simulated_add_ready(s, i);
    }
    do
        while (s->n_ready > 0)
            advance(s, take_earliest(s));
    while (ndp_simulated_copy_earliest(s));
    for (int i = 0; i < s->tracks.n; i++)
        if (s->ranks[i].in)
            return ndp_track_deadlock(track(s, i), s->ranks[i].event);
    return NDP_OK;
}

/* ---- all ---- */

/* Where no times of instructions are wanted, and waits do not depend on what the other side does meanwhile. */
static bool lists_at_once(const ndp_step_costs *costs) { return costs->spent && costs->background; }

typedef struct lone_user {
    const simulation *s;
    const ndp_program *p;
    const ndp_instr *in;
} lone_user;

static double lone_seconds(const void *user, const ndp_call *call) {
    const lone_user *u = user;
    return u->s->costs->seconds(u->s->costs->user, u->p, u->in, call);
}

static void lone_links(const void *user, const ndp_call *call, double busy[NDP_BUSY_LINKS]) {
    const lone_user *u = user;
    if (u->s->costs->links)
        u->s->costs->links(u->s->costs->user, u->p, call, busy);
}

static ndp_status make_lone(simulation *s, int i) {
    const ndp_program *p = track(s, i)->program;
    s->lone[i] = calloc(LONE_LISTS, sizeof *s->lone[i]);
    NDP_CHECK_MEMORY(s->lone[i], "to simulate %d programs", s->tracks.n);
    for (int k = 0; k < p->n; k++) {
        const ndp_instr *in = &p->instrs[k];
        s->ranks[i].in = in;
        ndp_lone_list *l = lone_of(s, i);
        const lone_user u = {s, p, in};
        if (l && !l->calls)
            NDP_TRY(ndp_lone_list_make(ndp_program_list(p, in),
                                       &(ndp_lone_costs){lone_seconds, lone_links, &u, s->costs->beside}, l));
    }
    return NDP_OK;
}

/* Reports lists that were run at once: each of their calls once, with the first instruction that runs it. */
static void tell_lone(simulation *s, int i) {
    const ndp_program *p = track(s, i)->program;
    for (int k = 0; k < p->n; k++) {
        s->ranks[i].in = &p->instrs[k];
        ndp_lone_list *l = lone_of(s, i);
        for (int c = 0; l && c < l->n && l->times; c++)
            if (l->calls[c].spent > 0)
                s->costs->spent(s->costs->into, i, &p->instrs[k], l->calls[c].call, l->calls[c].spent, l->times);
        if (l)
            l->times = 0;
    }
    s->ranks[i].in = NULL;
}

static ndp_status take_memory(simulation *s, ndp_simulation *out) {
    size_t n = (size_t)s->tracks.n + 1;
    bool times = !s->costs->spent;
    *out = (ndp_simulation){.n = s->tracks.n};
    if (times)
        out->times = calloc(n, sizeof *out->times), out->parts = calloc(n, sizeof *out->parts);
    s->ready = calloc(n, sizeof *s->ready);
    s->ranks = calloc(n, sizeof *s->ranks);
    s->operations = calloc(n, sizeof *s->operations);
    s->events = calloc(n, sizeof *s->events);
    s->lone = lists_at_once(s->costs) ? calloc(n, sizeof *s->lone) : NULL;
    bool ok = (!times || (out->times && out->parts)) && s->ready && s->ranks && s->operations && s->events &&
              (s->lone || !lists_at_once(s->costs));
    for (int i = 0; ok && i < s->tracks.n; i++) {
        const ndp_track *t = track(s, i);
        size_t events = (size_t)t->n + 1;
        if (times)
            out->times[i] = calloc((size_t)ndp_program_executed(t->program) + 1, sizeof *out->times[i]);
        s->operations[i] = calloc(events, sizeof *s->operations[i]);
        s->events[i] = s->costs->background ? NULL : calloc(events, sizeof *s->events[i]);
        ok = (!times || out->times[i]) && s->operations[i] && (s->events[i] || s->costs->background);
    }
    s->times = out->times;
    return NDP_MEMORY(ok, "to simulate %d programs", s->tracks.n);
}

static void release(simulation *s) {
    for (int i = 0; i < s->tracks.n; i++) {
        if (s->operations)
            free(s->operations[i]);
        if (s->events)
            free(s->events[i]);
        for (int k = 0; s->lone && s->lone[i] && k < LONE_LISTS; k++)
            ndp_lone_list_release(&s->lone[i][k]);
        if (s->lone)
            free(s->lone[i]);
    }
    free(s->ranks);
    free(s->ready);
    free(s->operations);
    free(s->events);
    free(s->lone);
    ndp_tracks_release(&s->tracks);
}

ndp_status ndp_simulate(const ndp_program *const *programs, int n, const ndp_step_costs *costs, ndp_simulation *out) {
    simulation s = {.costs = costs};
    *out = (ndp_simulation){0};
    ndp_visits visits = {costs->visits.first, costs->visits.without, true};
    ndp_status st = ndp_tracks_match(programs, n, visits, lists_at_once(costs), &s.tracks);
    if (st == NDP_OK)
        st = take_memory(&s, out);
    for (int i = 0; st == NDP_OK && s.lone && i < n; i++)
        st = make_lone(&s, i);
    if (st == NDP_OK)
        st = run_all(&s);
    for (int i = 0; st == NDP_OK && i < n; i++)
        out->makespan = fmax(out->makespan, s.ranks[i].t.now);
    for (int i = 0; st == NDP_OK && i < n; i++) {
        if (s.lone)
            tell_lone(&s, i);
        tell(&s, i, NULL, out->makespan - s.ranks[i].t.now);
    }
    for (int i = 0; st == NDP_OK && i < n && out->times; i++) {
        ndp_step_parts(programs[i], out->times[i], ndp_program_executed(programs[i]), out->parts[i]);
        out->parts[i][NDP_PART_IDLE] = out->makespan - s.ranks[i].t.now;
    }
    release(&s);
    return st;
}

void ndp_simulation_release(ndp_simulation *s) {
    for (int i = 0; s->times && i < s->n; i++)
        free(s->times[i]);
    free(s->times);
    free(s->parts);
    *s = (ndp_simulation){0};
}

/* ---- costs by price ---- */

double ndp_price_seconds(const void *user, const ndp_program *p, const ndp_instr *in, const ndp_call *call) {
    (void)in;
    const ndp_price *price = user;
    if (call->kind == NDP_CALL_KERNEL)
        return price->kernel(price->user, call);
    ndp_group group = ndp_mesh_group(&p->opts.step.mesh, ndp_channel_group(call->channel));
    return price->comm(price->user, call, &group);
}
