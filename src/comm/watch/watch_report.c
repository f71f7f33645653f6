/* What the watchdog says: the states of ranks in words, and the error of a wait beyond the time limit. */
#include "comm/watch/watch_report.h"
#include "base/clock.h"
#include "comm/watch/state_query.h"
#include "comm/watch/watchdog.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

ndp_rank_state ndp_watchdog_state_of(const ndp_transport *t, int rank) {
    ndp_rank_state s = {.record.kind = -2}; /* not sound */
    if (ndp_state_query_is_local(t->state_query, rank) || ndp_state_query_remote(t->state_query, rank))
        s = ndp_journal_read(&t->journals[rank]);
    return ndp_rank_state_is_sound(&s, t->world) ? s : (ndp_rank_state){.blocked_on = -1, .record.kind = -1};
}

/* ---- text ---- */

void ndp_report_add(ndp_report *s, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(s->data + s->n, sizeof s->data - s->n, fmt, args);
    va_end(args);
    size_t room = sizeof s->data - 1 - s->n;
    s->n += n > 0 && (size_t)n < room ? (size_t)n : room;
}

void ndp_report_rank(ndp_report *s, const ndp_transport *t, int rank) {
    ndp_report_add(s, "rank %d", rank);
    if (t->hosts)
        ndp_report_add(s, " on %s", t->hosts[rank].text);
}

/* ", and its device was at #12 forward layers.1 0.3 s ago" */
static void add_place(ndp_report *s, const ndp_device_place *p) {
    char text[160];
    if (p->waypoint && p->idle)
        ndp_report_add(s, ", and its device has nothing to do");
    else if (p->waypoint)
        ndp_report_add(s, ", and its device was at %s %.1f s ago", ndp_place_text(p, text, sizeof text),
                       ndp_now() - p->seen);
}

static void add_record(ndp_report *s, const ndp_rank_state *a) {
    const ndp_record *r = &a->record;
    bool ended = !a->waiting && r->ended > 0;
    char what[160];
    ndp_report_add(s, "%s%s of group %s%s %.1f s ago",
                   a->waiting    ? "waits at "
                   : r->waypoint ? "has submitted nothing since "
                   : ended       ? "computes after "
                                 : "computes after beginning ",
                   ndp_record_text(r, what, sizeof what), r->group,
                   a->waiting              ? ", begun"
                   : ended && !r->waypoint ? ", ended"
                   : r->waypoint           ? ","
                                           : "",
                   ndp_now() - (ended ? r->ended : r->begun));
}

void ndp_report_state(ndp_report *s, ndp_rank_state *a) {
    char text[160];
    if (a->on_device && !a->waiting && a->place.waypoint) {
        ndp_report_add(s, "is at %s on its device, for %.1f s", ndp_place_text(&a->place, text, sizeof text),
                       ndp_now() - a->place.since);
        return;
    }
    if (a->waiting && a->at.instr >= 0) {
        a->record.at.instr = a->at.instr;
        a->record.at.call = a->at.call;
    }
    if (a->record.kind < 0)
        ndp_report_add(s, a->known ? "computes" : "has begun no operation that this rank can see");
    else
        add_record(s, a);
    if (!a->waiting)
        add_place(s, &a->place);
}

/* "ranks 0-4, 6 wait": the members of the group that do; the first one, or -1. */
static int report_waiting(ndp_report *s, const ndp_transport *t, const ndp_group *g) {
    ndp_report list = {.n = 0};
    int n = 0, first = -1, last = -2, one = -1;
    for (int p = 0; p <= g->count; p++) {
        int rank = p < g->count ? g->base + p * g->stride : -1;
        bool waits = rank >= 0 && ndp_watchdog_state_of(t, rank).waiting;
        n += waits;
        one = waits && one < 0 ? rank : one;
        if (waits && rank == last + 1) {
            last = rank;
            continue;
        }
        if (last >= 0 && last > first)
            ndp_report_add(&list, "-%d", last);
        if (waits)
            ndp_report_add(&list, "%s%d", list.n ? ", " : "", rank);
        first = last = waits ? rank : -2;
    }
    ndp_report_add(s, "%s %.200s%s %s",
                   n == 0   ? "no rank"
                   : n == 1 ? "rank"
                            : "ranks",
                   list.data, list.n > 200 ? " ..." : "", n > 1 ? "wait" : "waits");
    return one;
}

static bool has_begun(const ndp_transport *t, int rank) {
    const ndp_remote_state *remote = ndp_state_query_remote(t->state_query, rank);
    return remote && remote->progress.progress == NDP_PROGRESS_BEGUN;
}

int ndp_watchdog_find_silent(const ndp_work *w, double seconds) {
    const ndp_transport *t = w->comm->transport;
    int silent[2] = {-1, -1}; /* not begun, begun */
    double longest[2] = {0, 0};
    for (int p = 0; p < w->comm->group.count; p++) {
        int rank = ndp_comm_world_rank(w->comm, p);
        if (ndp_state_query_is_local(t->state_query, rank))
            continue;
        bool begun = has_begun(t, rank);
        double silence = ndp_state_query_silence(t->state_query, rank);
        if (silence >= (begun ? NDP_SILENT_SECONDS : seconds) && (silent[begun] < 0 || silence > longest[begun])) {
            silent[begun] = rank;
            longest[begun] = silence;
        }
    }
    return silent[0] >= 0 ? silent[0] : silent[1];
}

/* ---- time-outs ---- */

/* Follows the edges from `rank` to one that is blocked on none. */
static int find_root(const ndp_transport *t, int rank) {
    for (int k = 0; k < NDP_LONGEST_CYCLE; k++) {
        int next = ndp_watchdog_state_of(t, rank).blocked_on;
        if (next < 0 || next == t->rank)
            break;
        rank = next;
    }
    return rank;
}

/* What the rank does, as far as this one knows. */
static void add_activity(ndp_report *s, const ndp_transport *t, int rank) {
    ndp_rank_state a = ndp_watchdog_state_of(t, rank);
    double silence = ndp_state_query_silence(t->state_query, rank);
    ndp_record last;
    char what[160];
    if (a.known || ndp_state_query_is_local(t->state_query, rank))
        ndp_report_state(s, &a);
    else if (ndp_journal_last_with(&t->journals[t->rank], rank, &last))
        ndp_report_add(s, "was last seen in %s of group %s, %.1f s ago", ndp_record_text(&last, what, sizeof what),
                       last.group, ndp_now() - last.ended);
    else
        ndp_report_add(s, "was never seen");
    if ((a.waiting || a.on_device) && ndp_now() - a.last_poll >= NDP_SILENT_SECONDS)
        ndp_report_add(s, ", and is stopped: it has not polled for %.1f s", ndp_now() - a.last_poll);
    else if (silence >= NDP_PATIENCE_SECONDS)
        ndp_report_add(s, ", and has not replied for %.1f s (it is computing, stopped or dead)", silence);
}

static int find_missing(const ndp_work *w, int member) {
    const ndp_transport *t = w->comm->transport;
    int missing = member < 0 ? ndp_watchdog_state_of(t, t->rank).blocked_on : ndp_comm_world_rank(w->comm, member);
    return missing < 0 ? ndp_watchdog_find_silent(w, 0) : missing;
}

/* When a device of this rank, or of one on the way from `rank` to the root, was seen to go on last; 0: never. */
static double went_on(const ndp_transport *t, int rank) {
    double last = 0;
    int next = t->rank;
    for (int k = 0; k < NDP_LONGEST_CYCLE && next >= 0; k++) {
        ndp_rank_state a = ndp_watchdog_state_of(t, next);
        last = a.place.waypoint ? fmax(last, a.place.since) : last;
        next = k == 0 ? rank : a.blocked_on;
        if (next == t->rank)
            break;
    }
    return last;
}

ndp_status ndp_watchdog_check_limit(const ndp_work *w, int member, double since, double now) {
    const ndp_transport *t = w->comm->transport;
    if (now - since <= t->timeout || now - went_on(t, find_missing(w, member)) <= t->timeout)
        return NDP_OK;
    return ndp_watchdog_timeout(w, member);
}

ndp_status ndp_watchdog_timeout(const ndp_work *w, int member) {
    const ndp_transport *t = w->comm->transport;
    int missing = find_missing(w, member);
    int root = missing < 0 ? -1 : find_root(t, missing);
    ndp_report s = {.n = 0};
    ndp_rank_state me = ndp_watchdog_state_of(t, t->rank);
    ndp_report_rank(&s, t, t->rank);
    ndp_report_add(&s, " waited %g s in %s of group %s and ", t->timeout, ndp_work_kind_name(w->kind), w->comm->name);
    if (missing < 0) {
        ndp_report_add(&s, "all other ranks have begun it, but it does not complete: ");
    } else {
        ndp_report_rank(&s, t, missing);
        bool local = ndp_state_query_is_local(t->state_query, missing);
        ndp_report_add(&s, !local && has_begun(t, missing) ? " has begun it and stopped replying: it "
                                                           : " has not arrived: it ");
        add_activity(&s, t, missing);
        if (root != missing) {
            ndp_report_add(&s, ", blocked on ");
            ndp_report_rank(&s, t, root);
            ndp_report_add(&s, ", which ");
            add_activity(&s, t, root);
        }
        ndp_report_add(&s, "; ");
    }
    report_waiting(&s, t, &w->comm->group);
    ndp_report_add(&s, ", rank %d ", t->rank);
    ndp_report_state(&s, &me);
    return NDP_FAIL(NDP_ECOMM, "%s; NDP_COMM_TIMEOUT sets the limit in seconds", s.data);
}

ndp_status ndp_watchdog_device_timeout(const ndp_transport *host, double seconds) {
    const ndp_rank_state me = ndp_watchdog_state_of(host, host->rank);
    const ndp_group world = {0, 1, host->world, host->rank};
    char text[160];
    ndp_report s = {.n = 0};
    ndp_report_rank(&s, host, host->rank);
    if (me.place.waypoint)
        ndp_report_add(&s, " is at %s on its device, for %.1f s, and does not go on; ",
                       ndp_place_text(&me.place, text, sizeof text), seconds);
    else
        ndp_report_add(&s, " waited %.1f s for its device, which does not go on; ", seconds);
    int first = report_waiting(&s, host, &world);
    if (first >= 0) {
        ndp_rank_state other = ndp_watchdog_state_of(host, first);
        ndp_report_add(&s, ", rank %d ", first);
        ndp_report_state(&s, &other);
    }
    return NDP_FAIL(NDP_ECOMM, "%s; NDP_COMM_TIMEOUT sets the limit in seconds", s.data);
}
