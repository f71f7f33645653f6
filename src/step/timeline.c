/* Events from the times of instructions, the sums over them, and the gathering of several ranks' events. */
#include "step/timeline.h"

#include "base/clock.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_OF(KIND, name, ...) name,
static const char *const names[] = {NDP_EVENT_KINDS_LIST(NAME_OF)};

static bool is_wait(ndp_event_kind k) {
    return k == NDP_EVENT_RECEIVE || k == NDP_EVENT_SEND || k == NDP_EVENT_COLLECTIVE;
}

/* ---- events of one rank ---- */

static ndp_status append(ndp_timeline *t, const ndp_timeline_event *e) {
    NDP_TRY(ndp_array_reserve(&t->events, &t->capacity, t->n + 1, sizeof *t->events));
    t->events[t->n++] = *e;
    return NDP_OK;
}

/* One past the last run of the entry that begins with instruction `first`; *kind: what its phases do. */
static int end_of_entry(const ndp_program *p, int first, int n, ndp_event_kind *kind) {
    bool input = false, weight = false;
    int end = first;
    for (int i = first; i < n; i++) {
        const ndp_instr *in = &p->instrs[i];
        if (in->code == NDP_DO_RUN && in->entry != p->instrs[first].entry)
            break;
        if (in->code != NDP_DO_RUN)
            continue;
        input |= in->phase == NDP_BACKWARD_INPUT;
        weight |= in->phase == NDP_BACKWARD_WEIGHT;
        end = i + 1;
    }
    *kind = input && weight ? NDP_EVENT_BACKWARD
            : input         ? NDP_EVENT_INPUT_GRADIENT
            : weight        ? NDP_EVENT_WEIGHT_GRADIENT
                            : NDP_EVENT_FORWARD;
    return end;
}

static ndp_status add_action(ndp_timeline *t, const ndp_program *p, const ndp_instr_time *times, int first, int end,
                             ndp_event_kind kind) {
    const ndp_instr *in = &p->instrs[first];
    ndp_timeline_event e = {.kind = kind,
                            .rank = p->opts.step.mesh.rank,
                            .stage = p->opts.model->units[in->unit].stage,
                            .micro_batch = in->micro_batch,
                            .start = times[first].start,
                            .end = times[end - 1].end};
    snprintf(e.name, sizeof e.name, "stage %d %s mb %d", e.stage, names[kind], e.micro_batch);
    return append(t, &e);
}

/* A wait that took time, or a kernel. */
static ndp_status add_call(ndp_timeline *t, const ndp_program *p, const ndp_instr_time *time, const ndp_instr *in) {
    ndp_collective c = in->call.op->collective;
    bool message = c == NDP_SEND || c == NDP_RECV;
    ndp_timeline_event e = {.kind = in->call.kind == NDP_CALL_KERNEL ? NDP_EVENT_UPDATE
                                    : c == NDP_RECV                  ? NDP_EVENT_RECEIVE
                                    : c == NDP_SEND                  ? NDP_EVENT_SEND
                                                                     : NDP_EVENT_COLLECTIVE,
                            .rank = p->opts.step.mesh.rank,
                            .stage = NDP_NONE,
                            .micro_batch = message ? in->micro_batch : NDP_NONE,
                            .start = time->start,
                            .end = time->end};
    if (in->call.kind == NDP_CALL_BEGIN || !(time->end > time->start))
        return NDP_OK;
    if (message)
        snprintf(e.name, sizeof e.name, "%s %s", names[e.kind], in->what);
    else
        snprintf(e.name, sizeof e.name, "%s %s", in->call.op->name, in->what);
    return append(t, &e);
}

ndp_status ndp_timeline_add(ndp_timeline *t, const ndp_program *p, const ndp_instr_time *times, int n) {
    int end = 0; /* of the action that is listed */
    for (int i = 0; i < n; i++) {
        const ndp_instr *in = &p->instrs[i];
        ndp_event_kind kind;
        if (in->code == NDP_DO_CALL) {
            NDP_TRY(add_call(t, p, &times[i], in));
        } else if (i >= end) {
            end = end_of_entry(p, i, n, &kind);
            NDP_TRY(add_action(t, p, times, i, end, kind));
        }
    }
    return NDP_OK;
}

void ndp_timeline_release(ndp_timeline *t) {
    free(t->events);
    *t = (ndp_timeline){0};
}

/* ---- all ranks ---- */

static ndp_status all_gather(ndp_comm *c, const void *in, void *out, size_t bytes) {
    ndp_work w;
    NDP_TRY(ndp_all_gather_begin(c, in, out, (int64_t)(bytes / sizeof(int64_t)), NDP_I64, &w));
    return ndp_wait(&w);
}

/* Puts the events of all ranks, of whom rank r has counts[r], into *t. */
static ndp_status exchange(ndp_timeline *t, ndp_comm *c, const int64_t *counts) {
    size_t most = 1, size = sizeof *t->events, ranks = (size_t)ndp_comm_size(c);
    for (size_t r = 0; r < ranks; r++)
        most = (size_t)counts[r] > most ? (size_t)counts[r] : most;
    ndp_timeline_event *mine = calloc(most, size), *all = calloc(most * ranks, size);
    ndp_status st = mine && all ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "no memory to gather the events of %zu ranks", ranks);
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

ndp_status ndp_timeline_gather(ndp_timeline *t, ndp_comm *c, bool one_clock) {
    _Static_assert(sizeof(ndp_timeline_event) % sizeof(int64_t) == 0, "events travel as 8 byte numbers");
    int64_t n = t->n, *counts = calloc((size_t)ndp_comm_size(c) + 1, sizeof *counts);
    if (!counts)
        return NDP_FAIL(NDP_ENOMEM, "no memory to gather the events of %d ranks", ndp_comm_size(c));
    ndp_status st = one_clock ? NDP_OK : ndp_barrier(c);
    double now = one_clock ? 0 : ndp_now();
    for (int i = 0; i < t->n; i++)
        t->events[i].start -= now, t->events[i].end -= now;
    if (st == NDP_OK)
        st = all_gather(c, &n, counts, sizeof n);
    if (st == NDP_OK)
        st = exchange(t, c, counts);
    free(counts);
    return st;
}

/* ---- sums ---- */

static double whole_step(const ndp_timeline *t) {
    double first = INFINITY, last = -INFINITY;
    for (int i = 0; i < t->n; i++) {
        first = fmin(first, t->events[i].start);
        last = fmax(last, t->events[i].end);
    }
    return t->n > 0 ? last - first : 0;
}

bool ndp_timeline_rank(const ndp_timeline *t, int *cursor, ndp_rank_time *out) {
    int i = *cursor, action = NDP_NONE; /* the newest action: waits may be inside it */
    if (i >= t->n)
        return false;
    *out = (ndp_rank_time){.rank = t->events[i].rank, .step = whole_step(t)};
    for (; i < t->n && t->events[i].rank == out->rank; i++) {
        const ndp_timeline_event *e = &t->events[i];
        out->seconds[e->kind] += e->end - e->start;
        if (is_wait(e->kind) && action != NDP_NONE && e->start < t->events[action].end)
            out->seconds[t->events[action].kind] -= e->end - e->start;
        if (e->kind < NDP_EVENT_RECEIVE)
            action = i;
    }
    out->bubble = out->step > 0 ? out->seconds[NDP_EVENT_RECEIVE] / out->step : 0;
    *cursor = i;
    return true;
}

void ndp_timeline_print(const ndp_timeline *t, ndp_str *out) {
    ndp_rank_time r;
    ndp_str_addf(out, "step: %.3f ms\n", 1e3 * whole_step(t));
    for (int cursor = 0; ndp_timeline_rank(t, &cursor, &r);) {
        double computing = 0;
        for (int k = 0; k < NDP_EVENT_KINDS; k++)
            computing += is_wait((ndp_event_kind)k) ? 0 : r.seconds[k];
        double waits = r.seconds[NDP_EVENT_SEND] + r.seconds[NDP_EVENT_COLLECTIVE];
        double percent = r.step > 0 ? 100 / r.step : 0;
        ndp_str_addf(out,
                     "  rank %-4d computes %5.1f%%, bubble %5.1f%% (%.3f ms in waits for messages), other waits "
                     "%.1f%%\n",
                     r.rank, computing * percent, 100 * r.bubble, 1e3 * r.seconds[NDP_EVENT_RECEIVE], waits * percent);
    }
}
