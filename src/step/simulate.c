/* The simulation. The rank whose time is the earliest walks its calls until another is earlier, or it blocks in a wait
 * whose end is not known yet. So operations begin in the order of time, which is the order in which links take them;
 * but for links, what has happened on a rank stays as it is, whatever others do. A blocked rank is in the list of what
 * it is blocked on, and advances again when that has happened, so the work is linear in the number of calls. Lists that
 * are one rank's own matter (lone_lists.h) are run at once.
 *
 * The one exception is a send that is waited for before its receiver's wait for it: it may be copied in another wait of
 * the receiver, which ends at a time that is not known while the receiver is blocked in it. If no rank can advance, the
 * earliest such copy is the next thing that happens, so `copy_earliest` lets it happen. */
#include "step/simulate.h"

#include "step/tracks.h"
#include <math.h>
#include <stdlib.h>

/* The number of a rank, + 1, that others follow by rank.next; 0: none. A rank is in at most one list. */
typedef int rank_list;

/* A collective or message, in one place for all its members: by the event of its begin on the first of them, or of the
 * send. */
typedef struct operation {
    int begun;         /* members that have begun it, of those whose programs are given */
    rank_list blocked; /* in their waits for it, until all have begun it */
    double start;      /* the latest begin; once all have begun, when it starts */
    double seconds;
} operation;

typedef struct rank {
    ndp_walk at;
    const ndp_instr *in; /* the instruction that it executes; NULL: it has executed all */
    ndp_walk call;       /* of the instruction's, the one to execute */
    int event;           /* its next event; while it is blocked, that of its wait */
    ndp_streams t;
    double due;    /* when it is ready: its time, or the end of a list that is put off */
    double copied; /* when the send in whose wait it is blocked is copied, if copy_earliest found it; else negative */
    rank_list senders; /* blocked in the waits for sends that this rank copies */
    int next;          /* in a list of ranks */
    int pending;       /* operations that it has begun and others have not */
    int place;         /* in the list alone that it runs */
    bool put_off;
} rank;

enum { LONE_LISTS = NDP_MAX_GRAPHS * NDP_PHASES };

typedef struct simulation {
    ndp_tracks tracks;
    const ndp_step_costs *costs;
    ndp_instr_time **times;
    rank *ranks;
    operation **operations;
    ndp_lone_list **lone;    /* by track, by graph and phase: lists that are run at once; NULL: none are */
    ndp_instr_time **events; /* by track, by event: when it happened; NULL with `background` */
    int *ready, n_ready;     /* a heap of the ranks that are not blocked, the earliest first */
} simulation;

static const ndp_track *track(const simulation *s, int i) { return &s->tracks.items[i]; }

static void put(simulation *s, rank_list *list, int i) {
    s->ranks[i].next = *list;
    *list = i + 1;
}

static int take(simulation *s, rank_list *list) {
    int i = *list - 1;
    *list = s->ranks[i].next;
    return i;
}

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

static void add_ready(simulation *s, int i) { rise(s, i, s->n_ready++); }

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

/* Blocked ranks advance again. */
static void wake(simulation *s, rank_list *list) {
    while (*list) {
        int i = take(s, list);
        s->ranks[i].due = s->ranks[i].t.now;
        add_ready(s, i);
    }
}

static bool block(simulation *s, rank_list *list, int i) {
    put(s, list, i);
    return false;
}

/* The list that a rank is at, if it is run at once; else NULL. */
static ndp_lone_list *lone_of(const simulation *s, int i) {
    const rank *r = &s->ranks[i];
    const ndp_program *p = track(s, i)->program;
    if (!s->lone || !r->in || r->in->code != NDP_DO_RUN)
        return NULL;
    int graph = p->opts.model->units[r->in->unit].graph;
    return track(s, i)->lone[graph][r->in->phase] ? &s->lone[i][graph * NDP_PHASES + r->in->phase] : NULL;
}

/* ---- operations ---- */

static operation *operation_of(const simulation *s, int i, int begin) {
    const ndp_track *t = track(s, i);
    const ndp_comm_event *e = &t->events[begin];
    int channel = ndp_comm_event_channel(e), first = t->first[channel];
    if (!ndp_comm_event_is_message(e))
        return &s->operations[first][track(s, first)->nth[channel][t->place[begin]]];
    bool theirs = ndp_comm_event_kind(e) == NDP_RECV && t->other[begin] != NDP_NONE;
    return theirs ? &s->operations[t->other[begin]][t->match[begin]] : &s->operations[i][begin];
}

/* True if all whose programs are given have begun it. */
static bool all_begun(const simulation *s, int i, int begin, const operation *op) {
    const ndp_track *t = track(s, i);
    const ndp_comm_event *e = &t->events[begin];
    return op->begun == (!ndp_comm_event_is_message(e) ? t->members[ndp_comm_event_channel(e)]
                         : t->other[begin] == NDP_NONE ? 1
                                                       : 2);
}

/* The tracks *first to *end - 1 are all that may take part in the operation that begins in an event of track i, whose
 * links are used; of a collective, those that takes_part names. */
static void parties(const simulation *s, int i, int begin, int *first, int *end) {
    const ndp_track *t = track(s, i);
    const ndp_comm_event *e = &t->events[begin];
    bool message = ndp_comm_event_is_message(e), own = !message && t->members[ndp_comm_event_channel(e)] == 1;
    *first = message && ndp_comm_event_kind(e) != NDP_SEND ? t->other[begin] : message || own ? i : 0;
    *end = message || own ? *first + 1 : s->tracks.n;
    if (*first == NDP_NONE)
        *end = *first;
}

static bool takes_part(const simulation *s, int k, int i, int begin) {
    const ndp_comm_event *e = &track(s, i)->events[begin];
    int channel = ndp_comm_event_channel(e);
    return ndp_comm_event_is_message(e) ||
           (track(s, k)->members[channel] && track(s, k)->first[channel] == track(s, i)->first[channel]);
}

/* Runs what rank k does of a list that it has put off before rank i begins an operation, which changes the rest. */
static void take_up(simulation *s, int k, int i) {
    rank *r = &s->ranks[k];
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

/* An operation that all have begun waits for its links, and keeps them busy, each from when it is its turn there: what
 * waits for a NIC does not keep the links of the node from what is begun after it. A message does not wait behind a
 * collective, which would stop a pipeline for each buffer that is reduced: it moves at half the rate until the link is
 * free, and what comes after the collective waits for both. */
static void use_links(simulation *s, int i, int begin, const ndp_call *call, operation *op) {
    if (!s->costs->links && s->costs->beside == 0)
        return;
    double busy[NDP_BUSY_LINKS] = {0}, turn[NDP_BUSY_LINKS], shared = 0;
    bool message = ndp_comm_event_is_message(&track(s, i)->events[begin]);
    int first, end;
    parties(s, i, begin, &first, &end);
    for (int k = first; k < end; k++)
        if (takes_part(s, k, i, begin))
            take_up(s, k, i);
    if (s->costs->links)
        s->costs->links(s->costs->user, track(s, i)->program, call, busy);
    for (int l = 0; l < NDP_BUSY_LINKS; l++) {
        turn[l] = op->start;
        for (int k = first; k < end && busy[l] > 0; k++)
            turn[l] = takes_part(s, k, i, begin) ? fmax(turn[l], s->ranks[k].t.free[l]) : turn[l];
        shared = message ? fmax(shared, fmin(busy[l], turn[l] - op->start)) : 0;
    }
    for (int l = 0; l < NDP_BUSY_LINKS && !message; l++)
        op->start = fmax(op->start, turn[l]);
    op->seconds += shared;
    for (int k = first; k < end; k++) {
        rank *r = &s->ranks[k];
        if (!takes_part(s, k, i, begin))
            continue;
        r->t.moves = fmax(r->t.moves, op->start + op->seconds);
        for (int l = 0; l < NDP_BUSY_LINKS; l++)
            if (busy[l] > 0)
                r->t.free[l] = turn[l] + busy[l];
    }
}

/* All have begun an operation: those that did so before are no longer waiting for it. */
static void count_begun(simulation *s, int i, int begin) {
    const ndp_track *t = track(s, i);
    bool message = ndp_comm_event_is_message(&t->events[begin]);
    int first = message ? t->other[begin] : 0, end = message ? first + 1 : s->tracks.n;
    if (first == NDP_NONE || (!message && t->members[ndp_comm_event_channel(&t->events[begin])] == 1))
        return;
    for (int k = first; k < end; k++)
        s->ranks[k].pending -= k != i && takes_part(s, k, i, begin);
}

static void begin_call(simulation *s, int i, const ndp_call *call) {
    rank *r = &s->ranks[i];
    const ndp_track *t = track(s, i);
    const ndp_comm_event *e = &t->events[r->event];
    operation *op = operation_of(s, i, r->event);
    int channel = ndp_comm_event_channel(e);
    op->begun++;
    op->start = fmax(op->start, r->t.now);
    if (op == &s->operations[i][r->event])
        op->seconds = s->costs->seconds(s->costs->user, t->program, r->in, call);
    if (!all_begun(s, i, r->event, op)) {
        r->pending++;
        return;
    }
    count_begun(s, i, r->event);
    if (!ndp_comm_event_is_message(e)) {
        double *over = &s->ranks[t->first[channel]].t.over[channel];
        op->start = fmax(op->start, *over);
        use_links(s, i, r->event, call, op);
        *over = op->start + op->seconds;
    } else
        use_links(s, i, r->event, call, op);
    wake(s, &op->blocked);
}

/* ---- waits for sends that are copied by their receivers ---- */

/* When the message that track i sends in event `begin` is copied: in the first wait of its receiver, from its receive's
 * begin on, that ends at or after `begun`. False: that has not happened yet. */
static bool copied_in_wait(const simulation *s, int i, int begin, double begun, double *when) {
    const ndp_track *mine = track(s, i), *theirs = track(s, mine->other[begin]);
    const ndp_instr_time *times = s->events[mine->other[begin]];
    int low = mine->match[begin], high = s->ranks[mine->other[begin]].event, end = high;
    while (low < high) {
        int middle = (low + high) / 2;
        if (times[middle].end < begun)
            low = middle + 1;
        else
            high = middle;
    }
    while (low < end && theirs->events[low].begin)
        low++;
    if (low < end)
        *when = fmax(times[low].start, begun);
    return low < end;
}

static bool send_ends(const simulation *s, int i, int begin, const operation *op, double *end) {
    double copied = op->start;
    bool known = track(s, i)->other[begin] == NDP_NONE;
    if (!known && s->ranks[i].copied >= 0)
        copied = s->ranks[i].copied, known = true;
    if (!known)
        known = copied_in_wait(s, i, begin, op->start, &copied);
    *end = copied + op->seconds;
    return known;
}

/* With all ranks blocked or at their ends: finds the earliest copy in a wait that is not over. False: there is none. */
static bool copy_earliest(simulation *s) {
    int found = NDP_NONE, receiver = NDP_NONE;
    double earliest = INFINITY;
    for (int i = 0; i < s->tracks.n; i++) {
        const ndp_track *t = track(s, i);
        const rank *r = &s->ranks[i];
        int begin = r->in ? t->begin[r->event] : NDP_NONE;
        if (!r->in || s->costs->background || ndp_comm_event_kind(&t->events[begin]) != NDP_SEND)
            continue;
        const operation *op = operation_of(s, i, begin);
        int k = t->other[begin];
        bool can = k != NDP_NONE && s->ranks[k].in && all_begun(s, i, begin, op);
        double when = can ? fmax(op->start, s->ranks[k].t.now) : INFINITY;
        if (when < earliest)
            found = i, receiver = k, earliest = when;
    }
    if (found == NDP_NONE)
        return false;
    s->ranks[found].copied = earliest;
    wake(s, &s->ranks[receiver].senders);
    return true;
}

/* ---- ranks ---- */

/* The end of the wait that is the next event of track i. False: it is not known yet, and the rank is blocked. */
static bool wait_ends(simulation *s, int i, double *end) {
    const rank *r = &s->ranks[i];
    const ndp_track *t = track(s, i);
    int begin = t->begin[r->event];
    ndp_collective kind = ndp_comm_event_kind(&t->events[begin]);
    operation *op = operation_of(s, i, begin);
    if (!all_begun(s, i, begin, op))
        return block(s, &op->blocked, i);
    double over = op->start + op->seconds;
    if (kind == NDP_RECV && !s->costs->background)
        over = fmax(r->t.now, op->start) + op->seconds;
    if (kind == NDP_SEND && !s->costs->background && !send_ends(s, i, begin, op, &over))
        return block(s, &s->ranks[t->other[begin]].senders, i);
    *end = fmax(r->t.now, over);
    return true;
}

static void tell(const simulation *s, int i, const ndp_call *call, double seconds) {
    if (s->costs->spent && seconds > 0)
        s->costs->spent(s->costs->into, i, s->ranks[i].in, call, seconds, 1);
}

/* Runs one call; false: the rank is blocked in it. */
static bool run_call(simulation *s, int i, const ndp_call *call, double *waited) {
    rank *r = &s->ranks[i];
    double start = r->t.now, end = start;
    if (call->kind == NDP_CALL_KERNEL) {
        r->t.now = ndp_kernel_end(&r->t, s->costs->seconds(s->costs->user, track(s, i)->program, r->in, call),
                                  s->costs->beside);
        tell(s, i, call, r->t.now - start);
        return true;
    }
    if (call->kind == NDP_CALL_BEGIN)
        begin_call(s, i, call);
    else if (!wait_ends(s, i, &end))
        return false;
    if (s->events[i])
        s->events[i][r->event] = (ndp_instr_time){.start = start, .end = end};
    r->event++;
    r->t.now = end;
    r->copied = -1;
    *waited += end - start;
    tell(s, i, call, end - start);
    if (call->kind == NDP_CALL_WAIT)
        wake(s, &r->senders);
    return true;
}

static void tell_leaves(const simulation *s, int i) {
    const rank *r = &s->ranks[i];
    double until[NDP_UNTIL] = {r->t.now, fmax(r->t.now, r->t.moves)};
    for (int l = 0; l < NDP_BUSY_LINKS; l++)
        until[2 + l] = fmax(r->t.now, r->t.free[l]);
    s->costs->leaves(s->costs->into, i, until);
}

/* Takes a rank's next instruction. */
static void next_instr(simulation *s, int i) {
    rank *r = &s->ranks[i];
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
    rank *r = &s->ranks[i];
    if (r->pending > 0 && !r->put_off) {
        ndp_streams then = r->t;
        ndp_lone_list_run(l, r->place, INFINITY, false, false, &then);
        r->put_off = others_first(s, i, then.now);
        if (r->put_off) {
            add_ready(s, i);
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
static bool is_alone(const simulation *s, const rank *r, const ndp_call *call) {
    return s->lone && r->pending == 0 && call->kind == NDP_CALL_KERNEL;
}

/* Runs one rank until it blocks, or another is earlier. */
static void advance(simulation *s, int i) {
    rank *r = &s->ranks[i];
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
                add_ready(s, i);
                return;
            }
            if (!run_call(s, i, &calls[r->call.at], r->in->code == NDP_DO_RUN ? &time->waited : &waited))
                return;
        } while (ndp_walk_next(&repeats, n, NDP_ALL_ITERATIONS, &r->call));
        time->end = r->t.now;
    }
}

static ndp_status run_all(simulation *s) {
    for (int i = s->tracks.n - 1; i >= 0; i--) {
        s->ranks[i].copied = -1;
        s->ranks[i].at = NDP_WALK_START;
        next_instr(s, i);
        add_ready(s, i);
    }
    do
        while (s->n_ready > 0)
            advance(s, take_earliest(s));
    while (copy_earliest(s));
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
    if (!s->lone[i])
        return NDP_FAIL(NDP_ENOMEM, "not enough memory to simulate %d programs", s->tracks.n);
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
    return ok ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "not enough memory to simulate %d programs", s->tracks.n);
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
    ndp_status st = ndp_tracks_match(programs, n, costs->visits, lists_at_once(costs), &s.tracks);
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
