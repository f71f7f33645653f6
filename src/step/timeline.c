/* Events from the times of instructions, the sums over them, and the gathering of several ranks' events. */
#include "step/timeline.h"

#include "base/clock.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_OF(KIND, name, ...) name,
static const char *const names[] = {NDP_EVENT_KINDS_LIST(NAME_OF)};

/* ---- one rank ---- */

static ndp_status append(ndp_timeline *t, const ndp_timeline_event *e) {
    NDP_TRY(ndp_array_reserve(&t->events, &t->capacity, t->n + 1, sizeof *t->events));
    t->events[t->n++] = *e;
    return NDP_OK;
}

/* Adds a run to the action whose event is number *action, or begins the event of another action. */
static ndp_status add_run(ndp_timeline *t, const ndp_program *p, const ndp_instr *in, const ndp_instr_time *time,
                          int micro_batch, int *action, int *entry) {
    int kind = (int)ndp_step_part_of(in);
    if (*action == NDP_NONE || *entry != in->entry || t->events[*action].micro_batch != micro_batch) {
        *action = t->n, *entry = in->entry;
        NDP_TRY(append(t, &(ndp_timeline_event){.kind = kind,
                                                .rank = p->opts.step.mesh.rank,
                                                .stage = p->opts.model->units[in->unit].stage,
                                                .micro_batch = micro_batch,
                                                .start = time->start}));
    }
    ndp_timeline_event *e = &t->events[*action];
    if (e->kind == NDP_PART_RECOMPUTE) /* a part of the gradients that follow it */
        e->kind = kind;
    if (e->kind != kind && kind != NDP_PART_RECOMPUTE)
        e->kind = NDP_EVENT_BACKWARD;
    e->end = time->end;
    snprintf(e->name, sizeof e->name, "stage %d %s mb %d", e->stage, names[e->kind], e->micro_batch);
    return NDP_OK;
}

/* A wait that took time, or a kernel. */
static ndp_status add_call(ndp_timeline *t, const ndp_program *p, const ndp_instr *in, const ndp_instr_time *time,
                           int micro_batch) {
    ndp_step_part part = ndp_step_part_of(in);
    bool message = part == NDP_PART_RECEIVE || part == NDP_PART_SEND;
    ndp_timeline_event e = {.kind = (int)part,
                            .rank = p->opts.step.mesh.rank,
                            .stage = NDP_NONE,
                            .micro_batch = message ? micro_batch : NDP_NONE,
                            .start = time->start,
                            .end = time->end};
    if (in->call.kind == NDP_CALL_BEGIN || !(time->end > time->start))
        return NDP_OK;
    if (message)
        snprintf(e.name, sizeof e.name, "%s %s, micro-batch %d", names[part], in->what, micro_batch);
    else
        snprintf(e.name, sizeof e.name, "%s %s", in->call.op->name, in->what);
    return append(t, &e);
}

ndp_status ndp_timeline_add(ndp_timeline *t, const ndp_program *p, const ndp_instr_time *times, int64_t n) {
    int action = NDP_NONE, entry = NDP_NONE;
    for (ndp_walk w = NDP_WALK_START; ndp_program_next(p, NDP_ALL_ITERATIONS, &w) && w.executed < n;) {
        const ndp_instr *in = &p->instrs[w.at];
        const ndp_instr_time *time = &times[w.executed];
        int micro_batch = ndp_micro_batch_at(in, &w);
        NDP_TRY(in->code == NDP_DO_RUN ? add_run(t, p, in, time, micro_batch, &action, &entry)
                                       : add_call(t, p, in, time, micro_batch));
    }
    NDP_TRY(ndp_array_reserve(&t->ranks, &t->rank_capacity, t->n_ranks + 1, sizeof *t->ranks));
    ndp_rank_time *r = &t->ranks[t->n_ranks++];
    *r = (ndp_rank_time){
        .rank = p->opts.step.mesh.rank, .first = n ? times[0].start : 0, .last = n ? times[n - 1].end : 0};
    ndp_step_parts(p, times, n, r->seconds);
    return NDP_OK;
}

ndp_status ndp_timeline_add_step(ndp_timeline *t, const ndp_program *p, const ndp_instr_time *times, int64_t n,
                                 int64_t step) {
    int first = t->n;
    NDP_TRY(ndp_timeline_add(t, p, times, n));
    for (int i = first; i < t->n; i++)
        t->events[i].step = step;
    t->n_steps++;
    if (t->n_ranks == 1)
        return NDP_OK;
    ndp_rank_time *r = t->ranks, *added = &t->ranks[--t->n_ranks];
    for (int k = 0; k < NDP_PARTS; k++)
        r->seconds[k] += added->seconds[k];
    r->seconds[NDP_PART_IDLE] += added->first - r->last;
    r->last = added->last;
    return NDP_OK;
}

void ndp_timeline_release(ndp_timeline *t) {
    free(t->events);
    free(t->ranks);
    *t = (ndp_timeline){0};
}

/* ---- all ranks ---- */

static ndp_status all_gather(ndp_comm *c, const void *in, void *out, size_t bytes) {
    ndp_work w;
    NDP_TRY(ndp_all_gather_begin(c, in, out, (int64_t)(bytes / sizeof(int64_t)), NDP_I64, &w));
    return ndp_wait(&w);
}

/* Puts the events of all ranks, of whom rank r has counts[r], into *t. */
static ndp_status exchange_events(ndp_timeline *t, ndp_comm *c, const int64_t *counts) {
    size_t most = 1, size = sizeof *t->events, ranks = (size_t)ndp_comm_size(c);
    for (size_t r = 0; r < ranks; r++)
        most = (size_t)counts[r] > most ? (size_t)counts[r] : most;
    ndp_timeline_event *mine = calloc(most, size), *all = calloc(most * ranks, size);
    ndp_status st = NDP_MEMORY(mine && all, "to gather the events of %zu ranks", ranks);
    if (st == NDP_OK && t->n > 0)
        memcpy(mine, t->events, (size_t)t->n * size);
    if (st == NDP_OK)
        st = all_gather(c, mine, all, most * size);
    t->n = 0;
    for (size_t r = 0; r < ranks; r++)
        for (size_t k = 0; st == NDP_OK && k < (size_t)counts[r]; k++)
            st = append(t, &all[r * most + k]);
    free(mine);
    free(all);
    return st;
}

static ndp_status exchange_ranks(ndp_timeline *t, ndp_comm *c) {
    const ndp_rank_time mine = t->ranks[0];
    NDP_TRY(ndp_array_reserve(&t->ranks, &t->rank_capacity, ndp_comm_size(c), sizeof *t->ranks));
    t->n_ranks = ndp_comm_size(c);
    return all_gather(c, &mine, t->ranks, sizeof mine);
}

ndp_status ndp_timeline_gather(ndp_timeline *t, ndp_comm *c, bool one_clock) {
    _Static_assert(sizeof(ndp_timeline_event) % sizeof(int64_t) == 0, "events travel as 8 byte numbers");
    _Static_assert(sizeof(ndp_rank_time) % sizeof(int64_t) == 0, "so do ranks");
    int64_t n = t->n, *counts = calloc((size_t)ndp_comm_size(c) + 1, sizeof *counts);
    NDP_CHECK_MEMORY(counts, "to gather the events of %d ranks", ndp_comm_size(c));
    ndp_status st = one_clock ? NDP_OK : ndp_barrier(c);
    double now = one_clock ? 0 : ndp_now();
    for (int i = 0; i < t->n; i++)
        t->events[i].start -= now, t->events[i].end -= now;
    t->ranks[0].first -= now, t->ranks[0].last -= now;
    if (st == NDP_OK)
        st = all_gather(c, &n, counts, sizeof n);
    if (st == NDP_OK)
        st = exchange_events(t, c, counts);
    if (st == NDP_OK)
        st = exchange_ranks(t, c);
    free(counts);
    return st;
}

/* ---- sums ---- */

ndp_rank_time ndp_timeline_rank(const ndp_timeline *t, int i) {
    ndp_rank_time r = t->ranks[i];
    double first = r.first, last = r.last;
    for (int k = 0; k < t->n_ranks; k++) {
        first = fmin(first, t->ranks[k].first);
        last = fmax(last, t->ranks[k].last);
    }
    r.step = last - first;
    r.seconds[NDP_PART_IDLE] += r.first - first + last - r.last;
    return r;
}

void ndp_timeline_print(const ndp_timeline *t, ndp_str *out) {
    if (t->n_ranks == 0)
        return;
    if (t->n_steps > 1)
        ndp_str_addf(out, "%d steps", t->n_steps);
    else
        ndp_str_add(out, "step");
    ndp_str_addf(out, ": %.3f ms, of which\n  rank  ", 1e3 * ndp_timeline_rank(t, 0).step);
    for (int k = 0; k < NDP_PARTS; k++)
        ndp_str_addf(out, "  %7s", names[k]);
    ndp_str_add(out, "\n");
    for (int i = 0; i < t->n_ranks; i++) {
        ndp_rank_time r = ndp_timeline_rank(t, i);
        ndp_str_addf(out, "  %-6lld", (long long)r.rank);
        for (int k = 0; k < NDP_PARTS; k++)
            ndp_str_addf(out, "  %*.1f%%", (int)fmax(6, (double)strlen(names[k]) - 1),
                         r.step > 0 ? 100 * r.seconds[k] / r.step : 0);
        ndp_str_add(out, "\n");
    }
}
