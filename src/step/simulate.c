/* The simulation. Each rank advances until it blocks in a wait whose end is not known yet; what has happened on a rank
 * stays as it is, so the order in which ranks advance does not matter.
 *
 * The one exception is a send that is waited for before its receiver's wait for it: it may be copied in another wait of
 * the receiver, which ends at a time that is not known while the receiver is blocked in it. If no rank can advance, the
 * earliest such copy is the next thing that happens, so `copy_earliest` lets it happen. */
#include "step/simulate.h"

#include "step/tracks.h"
#include <math.h>
#include <stdlib.h>

typedef struct simulation {
    ndp_tracks tracks;
    const ndp_step_costs *costs;
    ndp_instr_time **times;
    int *at;        /* by track: its next instruction */
    int *event;     /* its next event; while it is blocked, that of its wait */
    double *copied; /* when the send in whose wait it is blocked is copied, if copy_earliest found it; else negative */
} simulation;

static const ndp_track *track(const simulation *s, int i) { return &s->tracks.items[i]; }

static double cost(const simulation *s, int i, int instr) {
    const ndp_program *p = track(s, i)->program;
    return s->costs->seconds(s->costs->user, p, &p->instrs[instr]);
}

/* Sets *when to the time at which the operation that event `begin` of track i begins has begun on all its ranks; false:
 * it has not on one. */
static bool all_begun(const simulation *s, int i, int begin, double *when) {
    *when = s->times[i][track(s, i)->events[begin].instr].start;
    for (int k = 0; k < s->tracks.n; k++) {
        int theirs = k == i ? NDP_NONE : ndp_tracks_begin(&s->tracks, i, begin, k);
        int instr = theirs == NDP_NONE ? NDP_NONE : track(s, k)->events[theirs].instr;
        if (instr != NDP_NONE && s->at[k] <= instr)
            return false;
        if (instr != NDP_NONE)
            *when = fmax(*when, s->times[k][instr].start);
    }
    return true;
}

/* ---- waits for sends ---- */

/* The receiver of a send, and its first wait that is over and ends at or after `begun`; false: there is none yet. */
static bool copied_in_wait(const simulation *s, int i, int begin, double begun, double *when) {
    const ndp_track *mine = track(s, i);
    int k = mine->other[begin];
    for (int j = track(s, k)->events[mine->match[begin]].instr; j < s->at[k]; j++) {
        const ndp_instr_time *t = &s->times[k][j];
        if (ndp_instr_is(&track(s, k)->program->instrs[j], NDP_CALL_WAIT) && t->end >= begun) {
            *when = fmax(t->start, begun);
            return true;
        }
    }
    return false;
}

static bool send_ends(const simulation *s, int i, int begin, double begun, double *end) {
    double copied = begun;
    bool known = track(s, i)->other[begin] == NDP_NONE;
    if (!known && s->copied[i] >= 0)
        copied = s->copied[i], known = true;
    if (!known)
        known = copied_in_wait(s, i, begin, begun, &copied);
    *end = copied + cost(s, i, track(s, i)->events[begin].instr);
    return known;
}

/* True if track i is blocked in a wait. */
static bool is_blocked(const simulation *s, int i) { return s->at[i] < track(s, i)->program->n; }

/* With all ranks blocked or at their ends: finds the earliest copy in a wait that is not over. False: there is none. */
static bool copy_earliest(simulation *s) {
    int found = NDP_NONE;
    double earliest = INFINITY, begun;
    for (int i = 0; i < s->tracks.n; i++) {
        const ndp_track *t = track(s, i);
        const ndp_comm_event *e = is_blocked(s, i) ? &t->events[s->event[i]] : NULL;
        int begin = e ? t->begin[s->event[i]] : NDP_NONE;
        if (!e || s->costs->background || ndp_comm_event_kind(e) != NDP_SEND || !all_begun(s, i, begin, &begun))
            continue;
        int k = t->other[begin];
        double when = k != NDP_NONE && is_blocked(s, k) ? fmax(begun, s->times[k][s->at[k]].start) : INFINITY;
        if (when < earliest)
            found = i, earliest = when;
    }
    if (found != NDP_NONE)
        s->copied[found] = earliest;
    return found != NDP_NONE;
}

/* ---- ranks ---- */

/* The end of the wait that is event e of track i; false: it is not known yet. */
static bool wait_ends(const simulation *s, int i, int e, double start, double *end) {
    const ndp_track *t = track(s, i);
    int begin = t->begin[e];
    double begun, over;
    if (!all_begun(s, i, begin, &begun))
        return false;
    ndp_collective kind = ndp_comm_event_kind(&t->events[e]);
    double seconds = cost(s, i, t->events[begin].instr);
    if (kind == NDP_SEND && !s->costs->background) {
        if (!send_ends(s, i, begin, begun, &over))
            return false;
    } else {
        over = kind == NDP_RECV && !s->costs->background ? fmax(start, begun) + seconds : begun + seconds;
    }
    *end = fmax(start, over);
    return true;
}

/* Runs one rank until it blocks; true if it advanced. */
static bool advance(simulation *s, int i) {
    const ndp_track *t = track(s, i);
    int from = s->at[i], *at = &s->at[i];
    for (; *at < t->program->n; ++*at) {
        const ndp_instr *in = &t->program->instrs[*at];
        ndp_instr_time *time = &s->times[i][*at];
        time->start = time->end = *at > 0 ? s->times[i][*at - 1].end : 0;
        if (in->code == NDP_DO_RUN || in->call.kind == NDP_CALL_KERNEL)
            time->end += cost(s, i, *at);
        else if (in->call.kind == NDP_CALL_WAIT && !wait_ends(s, i, s->event[i], time->start, &time->end))
            break;
        while (s->event[i] < t->n && t->events[s->event[i]].instr <= *at)
            s->event[i]++;
        s->copied[i] = -1;
    }
    return *at > from;
}

static ndp_status run_all(simulation *s) {
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < s->tracks.n; i++)
            moved |= advance(s, i);
        moved = moved || copy_earliest(s);
    }
    for (int i = 0; i < s->tracks.n; i++)
        if (is_blocked(s, i))
            return ndp_track_deadlock(track(s, i), s->event[i]);
    return NDP_OK;
}

static ndp_status take_times(simulation *s, const ndp_program *const *programs, int n, ndp_simulation *out) {
    *out = (ndp_simulation){.times = calloc((size_t)n + 1, sizeof *out->times), .n = n};
    s->at = calloc((size_t)n + 1, sizeof *s->at);
    s->event = calloc((size_t)n + 1, sizeof *s->event);
    s->copied = calloc((size_t)n + 1, sizeof *s->copied);
    bool ok = out->times && s->at && s->event && s->copied;
    for (int i = 0; ok && i < n; i++) {
        out->times[i] = calloc((size_t)programs[i]->n + 1, sizeof *out->times[i]);
        ok = out->times[i] != NULL;
        s->copied[i] = -1;
    }
    s->times = out->times;
    return ok ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "no memory to simulate %d programs", n);
}

ndp_status ndp_simulate(const ndp_program *const *programs, int n, const ndp_step_costs *costs, ndp_simulation *out) {
    simulation s = {.costs = costs};
    ndp_status st = take_times(&s, programs, n, out);
    if (st == NDP_OK)
        st = ndp_tracks_match(programs, n, &s.tracks);
    if (st == NDP_OK)
        st = run_all(&s);
    for (int i = 0; st == NDP_OK && i < n; i++)
        if (programs[i]->n > 0)
            out->makespan = fmax(out->makespan, out->times[i][programs[i]->n - 1].end);
    ndp_tracks_release(&s.tracks);
    free(s.at);
    free(s.event);
    free(s.copied);
    return st;
}

void ndp_simulation_release(ndp_simulation *s) {
    for (int i = 0; s->times && i < s->n; i++)
        free(s->times[i]);
    free(s->times);
    *s = (ndp_simulation){0};
}

double ndp_simulation_busy(const ndp_simulation *s, int i, const ndp_program *p) {
    double sum = 0;
    for (int k = 0; k < p->n; k++)
        if (p->instrs[k].code == NDP_DO_RUN || p->instrs[k].call.kind == NDP_CALL_KERNEL)
            sum += s->times[i][k].end - s->times[i][k].start;
    return sum;
}

/* ---- costs by price ---- */

double ndp_price_seconds(const void *user, const ndp_program *p, const ndp_instr *in) {
    const ndp_price *price = user;
    if (in->code == NDP_DO_RUN)
        return ndp_list_price(ndp_program_list(p, in), price, &p->opts.step.mesh);
    if (in->call.kind == NDP_CALL_KERNEL)
        return price->kernel(price->user, &in->call);
    ndp_group group = ndp_mesh_group(&p->opts.step.mesh, ndp_channel_group(in->call.channel));
    return price->comm(price->user, &in->call, &group);
}
