/* The simulator's rules (step/simulate.h) once more, for comparison: it knows no order of events, but repeats the rules
 * for all ranks until no time changes. It matches collectives and messages by itself. */
#ifndef TESTS_STEP_NAIVE_SIMULATION_H
#define TESTS_STEP_NAIVE_SIMULATION_H

#include "check.h"
#include "step/simulate.h"

#include <math.h>
#include <string.h>

enum { NAIVE_RANKS = 16, MOST_EVENTS = 2048, MOST_OPERATIONS = NAIVE_RANKS * MOST_EVENTS };

static inline bool is_message(const ndp_call *c) {
    return c->op->collective == NDP_SEND || c->op->collective == NDP_RECV;
}

/* A collective of a group, or a message from rank `from` to rank `to`. */
typedef struct naive_operation {
    int channel, from, to, tag, nth;   /* of a collective, `from` and `to` are the group's first rank */
    int before;                        /* the operation before it on its channel; NDP_NONE */
    int receive;                       /* the event that begins it on the receiver */
    double start, next, seconds, over; /* next: the start, of the next round */
} naive_operation;

typedef struct naive_event {
    const ndp_call *call;
    int work, tag, operation; /* work: of the program's own (ndp_instr.work) */
    double kernels;           /* seconds of kernels since the event before it */
    double start, end;
} naive_event;

typedef struct naive_rank {
    naive_event events[MOST_EVENTS];
    int n;
    double last; /* seconds of kernels after the last event */
    double parts[NDP_PARTS], end;
} naive_rank;

typedef struct naive {
    naive_rank ranks[NAIVE_RANKS];
    naive_operation operations[MOST_OPERATIONS];
    const ndp_price *price;
    int n_ranks, n_operations;
} naive;

/* The operation that the begin `c` of rank r is a part of; `nth`: of those alike. */
static inline int naive_operation_of(naive *s, const ndp_program *p, int rank, const ndp_call *c, int tag, int nth) {
    ndp_group g = ndp_mesh_group(&p->opts.step.mesh, ndp_channel_group(c->channel));
    int peer = g.base + c->attr.peer * g.stride, previous = NDP_NONE;
    naive_operation o = {c->channel, g.base, g.base, 0, nth, NDP_NONE, 0, 0, 0, s->price->comm(s->price->user, c, &g),
                         0};
    if (is_message(c)) {
        o.from = c->op->collective == NDP_SEND ? rank : peer;
        o.to = c->op->collective == NDP_SEND ? peer : rank;
        o.tag = tag;
    }
    for (int i = 0; i < s->n_operations; i++) {
        const naive_operation *x = &s->operations[i];
        if (x->channel != o.channel || x->from != o.from || x->to != o.to)
            continue;
        if (x->tag == o.tag && x->nth == o.nth)
            return i;
        previous = i;
    }
    o.before = is_message(c) ? NDP_NONE : previous;
    assert_true(s->n_operations < MOST_OPERATIONS);
    s->operations[s->n_operations] = o;
    return s->n_operations++;
}

/* How many begins before event `end` are of the same channel, and of a message with the same other side and tag. */
static inline int naive_count_alike(const naive_rank *r, int end, const ndp_call *c, int tag, ndp_call_kind kind) {
    int n = 0;
    for (int i = 0; i < end; i++) {
        const ndp_call *x = r->events[i].call;
        bool same = x->kind == kind && x->channel == c->channel;
        n += same && (!is_message(c) || (x->op == c->op && x->attr.peer == c->attr.peer && r->events[i].tag == tag));
    }
    return n;
}

/* The event that begins what event `i` waits for: of a message, the newest of its instruction. */
static inline int naive_begin_of(const naive_rank *r, int i) {
    const ndp_call *c = r->events[i].call;
    int waited = naive_count_alike(r, i, c, r->events[i].tag, NDP_CALL_WAIT), begin = i;
    if (is_message(c)) {
        while (r->events[begin].work != r->events[i].work || r->events[begin].call->kind != NDP_CALL_BEGIN)
            begin--;
        return begin;
    }
    for (begin = 0;
         r->events[begin].call->kind != NDP_CALL_BEGIN || r->events[begin].call->channel != c->channel || waited-- > 0;)
        begin++;
    return begin;
}

static inline void naive_list_events(naive *s, int rank, const ndp_program *p) {
    naive_rank *r = &s->ranks[rank];
    for (ndp_walk w = NDP_WALK_START; ndp_program_next(p, NDP_ALL_ITERATIONS, &w);) {
        const ndp_instr *in = &p->instrs[w.at];
        int n;
        ndp_repeats repeats;
        const ndp_call *calls = ndp_instr_calls(p, in, &n, &repeats);
        for (int i = 0; i < n; i++) {
            double seconds = calls[i].kind == NDP_CALL_KERNEL ? s->price->kernel(s->price->user, &calls[i]) : 0;
            r->last += seconds;
            r->parts[ndp_step_part_of(in)] += seconds;
            if (calls[i].kind == NDP_CALL_KERNEL)
                continue;
            assert_true(r->n < MOST_EVENTS);
            naive_event *e = &r->events[r->n];
            *e = (naive_event){&calls[i],
                               in->code == NDP_DO_CALL ? ndp_work_at(in, &w) : NDP_NONE,
                               ndp_tag_at(&calls[i], &w),
                               NDP_NONE,
                               r->last,
                               0,
                               0};
            e->operation = calls[i].kind == NDP_CALL_BEGIN
                               ? naive_operation_of(s, p, rank, &calls[i], e->tag,
                                                    naive_count_alike(r, r->n, &calls[i], e->tag, NDP_CALL_BEGIN))
                               : r->events[naive_begin_of(r, r->n)].operation;
            if (calls[i].kind == NDP_CALL_BEGIN && calls[i].op->collective == NDP_RECV)
                s->operations[e->operation].receive = r->n;
            r->n++;
            r->last = 0;
        }
    }
}

/* When a send is copied: in the receiver's first wait from its receive on that ends after both sides have begun. */
static inline double naive_copied(const naive *s, const naive_operation *o) {
    const naive_rank *r = &s->ranks[o->to];
    for (int i = o->receive; i < r->n; i++)
        if (r->events[i].call->kind == NDP_CALL_WAIT && r->events[i].end >= o->start)
            return fmax(r->events[i].start, o->start);
    return o->start;
}

static inline double naive_wait_end(const naive *s, const naive_event *e, bool background) {
    const naive_operation *o = &s->operations[e->operation];
    if (is_message(e->call) && !background)
        return (e->call->op->collective == NDP_RECV ? fmax(e->start, o->start) : naive_copied(s, o)) + o->seconds;
    return o->over;
}

/* One round over all ranks; true if a time changed. */
static inline bool naive_settle(naive *s, bool background) {
    bool changed = false;
    for (int i = 0; i < s->n_ranks; i++) {
        naive_rank *r = &s->ranks[i];
        double now = 0;
        for (int k = 0; k < r->n; k++) {
            naive_event *e = &r->events[k];
            naive_operation *o = &s->operations[e->operation];
            double end = e->end;
            e->start = now + e->kernels;
            if (e->call->kind == NDP_CALL_BEGIN)
                o->next = fmax(o->next, e->start);
            now = e->end =
                e->call->kind == NDP_CALL_BEGIN ? e->start : fmax(e->start, naive_wait_end(s, e, background));
            changed |= e->end != end;
        }
        r->end = now + r->last;
    }
    for (int i = 0; i < s->n_operations; i++) {
        naive_operation *o = &s->operations[i];
        o->start = o->next, o->next = 0;
        double over = fmax(o->start, o->before == NDP_NONE ? 0 : s->operations[o->before].over) + o->seconds;
        changed |= over != o->over;
        o->over = over;
    }
    return changed;
}

/* The parts of each rank. `s` is of the heap: it is large. */
static inline void naive_run(naive *s, const ndp_program *const *programs, int n, bool background,
                             const ndp_price *price) {
    double makespan = 0;
    memset(s, 0, sizeof *s);
    s->n_ranks = n;
    s->price = price;
    for (int i = 0; i < n; i++)
        naive_list_events(s, i, programs[i]);
    int rounds = 0;
    while (naive_settle(s, background))
        assert_true(++rounds < MOST_EVENTS);
    for (int i = 0; i < n; i++)
        makespan = fmax(makespan, s->ranks[i].end);
    for (int i = 0; i < n; i++) {
        naive_rank *r = &s->ranks[i];
        for (int k = 0; k < r->n; k++) {
            ndp_collective c = r->events[k].call->op->collective;
            r->parts[c == NDP_RECV   ? NDP_PART_RECEIVE
                     : c == NDP_SEND ? NDP_PART_SEND
                                     : NDP_PART_COLLECTIVE] += r->events[k].end - r->events[k].start;
        }
        r->parts[NDP_PART_IDLE] = makespan - r->end;
    }
}

#endif
