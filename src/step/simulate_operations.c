/* The operations of a simulation, which several ranks do together: collectives and messages. When they start, which
 * links they wait for and keep busy, when the waits for them end, and which ranks are blocked until then.
 *
 * A rank is blocked until what it waits for has happened. The one exception is a send that is waited for before its
 * receiver's wait for it: it may be copied in another wait of the receiver, which ends at a time that is not known
 * while the receiver is blocked in it. If no rank can advance, the earliest such copy is the next thing that happens,
 * so `ndp_simulated_copy_earliest` lets it happen. */
#include "step/simulate_parts.h"

#include <math.h>

/* ---- blocked ranks ---- */

static void put(simulation *s, rank_list *list, int i) {
    s->ranks[i].next = *list;
    *list = i + 1;
}

static int take(simulation *s, rank_list *list) {
    int i = *list - 1;
    *list = s->ranks[i].next;
    return i;
}

void ndp_simulated_wake(simulation *s, rank_list *list) {
    while (*list) {
        int i = take(s, list);
        s->ranks[i].due = s->ranks[i].t.now;
        ndp_simulated_add_ready(s, i);
    }
}

static bool block(simulation *s, rank_list *list, int i) {
    put(s, list, i);
    return false;
}

/* ---- operations ---- */

static simulated_operation *operation_of(const simulation *s, int i, int begin) {
    const ndp_track *t = track(s, i);
    const ndp_comm_event *e = &t->events[begin];
    int channel = ndp_comm_event_channel(e), first = t->first[channel];
    if (!ndp_comm_event_is_message(e))
        return &s->operations[first][track(s, first)->nth[channel][t->place[begin]]];
    bool theirs = ndp_comm_event_kind(e) == NDP_RECV && t->other[begin] != NDP_NONE;
    return theirs ? &s->operations[t->other[begin]][t->match[begin]] : &s->operations[i][begin];
}

/* True if all whose programs are given have begun it. */
static bool all_begun(const simulation *s, int i, int begin, const simulated_operation *op) {
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

/* An operation that all have begun waits for its links, and keeps them busy, each from when it is its turn there: what
 * waits for a NIC does not keep the links of the node from what is begun after it. A message does not wait behind a
 * collective, which would stop a pipeline for each buffer that is reduced: it moves at half the rate until the link is
 * free, and what comes after the collective waits for both. */
static void use_links(simulation *s, int i, int begin, const ndp_call *call, simulated_operation *op) {
    if (!s->costs->links && s->costs->beside == 0)
        return;
    double busy[NDP_BUSY_LINKS] = {0}, turn[NDP_BUSY_LINKS], shared = 0;
    bool message = ndp_comm_event_is_message(&track(s, i)->events[begin]);
    int first, end;
    parties(s, i, begin, &first, &end);
    for (int k = first; k < end; k++)
        if (takes_part(s, k, i, begin))
            ndp_simulated_take_up(s, k, i);
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
        simulated_rank *r = &s->ranks[k];
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

void ndp_simulated_begin(simulation *s, int i, const ndp_call *call) {
    simulated_rank *r = &s->ranks[i];
    const ndp_track *t = track(s, i);
    const ndp_comm_event *e = &t->events[r->event];
    simulated_operation *op = operation_of(s, i, r->event);
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
    ndp_simulated_wake(s, &op->blocked);
}

/* ---- waits, and sends that are copied by their receivers ---- */

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

static bool send_ends(const simulation *s, int i, int begin, const simulated_operation *op, double *end) {
    double copied = op->start;
    bool known = track(s, i)->other[begin] == NDP_NONE;
    if (!known && s->ranks[i].copied >= 0)
        copied = s->ranks[i].copied, known = true;
    if (!known)
        known = copied_in_wait(s, i, begin, op->start, &copied);
    *end = copied + op->seconds;
    return known;
}

bool ndp_simulated_copy_earliest(simulation *s) {
    int found = NDP_NONE, receiver = NDP_NONE;
    double earliest = INFINITY;
    for (int i = 0; i < s->tracks.n; i++) {
        const ndp_track *t = track(s, i);
        const simulated_rank *r = &s->ranks[i];
        int begin = r->in ? t->begin[r->event] : NDP_NONE;
        if (!r->in || s->costs->background || ndp_comm_event_kind(&t->events[begin]) != NDP_SEND)
            continue;
        const simulated_operation *op = operation_of(s, i, begin);
        int k = t->other[begin];
        bool can = k != NDP_NONE && s->ranks[k].in && all_begun(s, i, begin, op);
        double when = can ? fmax(op->start, s->ranks[k].t.now) : INFINITY;
        if (when < earliest)
            found = i, receiver = k, earliest = when;
    }
    if (found == NDP_NONE)
        return false;
    s->ranks[found].copied = earliest;
    ndp_simulated_wake(s, &s->ranks[receiver].senders);
    return true;
}

bool ndp_simulated_wait_ends(simulation *s, int i, double *end) {
    const simulated_rank *r = &s->ranks[i];
    const ndp_track *t = track(s, i);
    int begin = t->begin[r->event];
    ndp_collective kind = ndp_comm_event_kind(&t->events[begin]);
    simulated_operation *op = operation_of(s, i, begin);
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
