#include "comm/watch/watchdog.h"
#include "base/clock.h"
#include "comm/watch/inquiry.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { RING = 64 }; /* ranks that are followed */

#define LOOK_SECONDS 0.1
#define SILENT_SECONDS 2.0   /* a rank that waits has looked and answered long before */
#define PATIENCE_SECONDS 0.4 /* with a rank that does not answer, before the next one is asked */

/* Of a far rank: what was heard of it since this rank sleeps. */
static ndp_standing standing_of(const ndp_transport *t, int rank) {
    ndp_standing s = {.record.kind = -2};
    if (ndp_inquiry_is_near(t->inquiry, rank) || ndp_inquiry_heard(t->inquiry, rank))
        s = ndp_journal_read(&t->journals[rank]);
    return ndp_standing_is_sound(&s, t->world) ? s : (ndp_standing){.awaits = -1, .record.kind = -1};
}

static ndp_status ask(const ndp_transport *t, int rank) {
    return ndp_inquiry_is_near(t->inquiry, rank) ? NDP_OK : ndp_inquiry_ask(t->inquiry, rank);
}

/* ---- text ---- */

typedef struct text {
    char data[900];
    size_t n;
} text;

__attribute__((format(printf, 2, 3))) static void add(text *s, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(s->data + s->n, sizeof s->data - s->n, fmt, args);
    va_end(args);
    size_t room = sizeof s->data - 1 - s->n;
    s->n += n > 0 && (size_t)n < room ? (size_t)n : room;
}

/* "rank 3", "rank 3 on node-b" where there are several hosts. */
static void add_rank(text *s, const ndp_transport *t, int rank) {
    add(s, "rank %d", rank);
    if (t->hosts)
        add(s, " on %s", t->hosts[rank].text);
}

/* "waits at #117 all_gather layers.3 (4096 bytes of fp32) of group tp, begun 2.1 s ago" */
static void add_standing(text *s, ndp_standing *a) {
    char what[160];
    if (a->record.kind < 0) {
        add(s, a->known ? "computes" : "has begun nothing that this rank can see");
        return;
    }
    bool ended = !a->waiting && a->record.ended > 0;
    if (a->waiting && a->at.instr >= 0) {
        a->record.at.instr = a->at.instr;
        a->record.at.call = a->at.call;
    }
    add(s, a->waiting ? "waits at " : ended ? "computes after " : "computes after the begin of ");
    add(s, "%s of group %s, %s %.1f s ago", ndp_record_text(&a->record, what, sizeof what), a->record.group,
        ended ? "ended" : "begun", ndp_now() - (ended ? a->record.ended : a->record.begun));
}

/* "0-4, 6": the members of the work's group that wait; how many. */
static int add_waiting(text *s, const ndp_work *w) {
    const ndp_comm *c = w->comm;
    text list = {.n = 0};
    int n = 0, first = -1, last = -2;
    for (int p = 0; p <= c->group.count; p++) {
        int rank = p < c->group.count ? ndp_comm_world_rank(c, p) : -1;
        bool waits = rank >= 0 && standing_of(c->transport, rank).waiting;
        n += waits;
        if (waits && rank == last + 1) {
            last = rank;
            continue;
        }
        if (last >= 0 && last > first)
            add(&list, "-%d", last);
        if (waits)
            add(&list, "%s%d", list.n ? ", " : "", rank);
        first = last = waits ? rank : -2;
    }
    add(s, "%s %.200s%s %s", n == 1 ? "rank" : "ranks", list.data, list.n > 200 ? " ..." : "",
        n == 1 ? "waits" : "wait");
    return n;
}

/* ---- who has to come ---- */

uint32_t ndp_watchdog_asleep(ndp_watch *v, const ndp_transport *t, int rank) {
    ndp_standing s = ndp_journal_read(&t->journals[rank]);
    if (!s.waiting || s.waits != v->waits) {
        v->waits = s.waiting ? s.waits : 0;
        v->looks = s.looks;
        return 0;
    }
    /* The first of the two looks may have been under way. */
    return s.looks - v->looks >= 2 ? s.waits : 0;
}

ndp_status ndp_watchdog_left(const ndp_work *w, int rank) {
    return NDP_FAIL(NDP_ECOMM, "rank %d left the run while others wait in %s (group %s)", rank,
                    ndp_work_kind_name(w->kind), w->comm->name);
}

static ndp_status judge(const ndp_work *w, int rank, const ndp_awaited *a, ndp_arrival *out) {
    const ndp_transport *t = w->comm->transport;
    *out = (ndp_arrival){.come = NDP_COME_UNKNOWN};
    NDP_TRY(ask(t, rank));
    if (ndp_inquiry_is_near(t->inquiry, rank))
        *out = ndp_inquiry_judge(t, rank, a);
    else if (ndp_inquiry_heard(t->inquiry, rank))
        *out = ndp_inquiry_heard(t->inquiry, rank)->arrival;
    return out->come == NDP_COME_NO && out->left ? ndp_watchdog_left(w, rank) : NDP_OK;
}

static ndp_status search_sender(const ndp_awaited *a, const ndp_work *w) {
    ndp_transport *t = w->comm->transport;
    ndp_arrival v;
    int rank = ndp_comm_world_rank(w->comm, w->peer);
    NDP_TRY(judge(w, rank, a, &v));
    ndp_journal_await(&t->journals[t->rank], rank, v.come == NDP_COME_NO ? v.in : 0);
    return NDP_OK;
}

static bool has_begun(const ndp_transport *t, int rank) {
    const ndp_far *heard = ndp_inquiry_heard(t->inquiry, rank);
    return heard && heard->arrival.come == NDP_COME_YES;
}

/* Of the members of other nodes that have not said that they have come the one that is silent for longest, else one
 * that fell silent afterwards; -1: none is for `seconds`. */
static int find_silent(const ndp_work *w, double seconds) {
    const ndp_transport *t = w->comm->transport;
    int silent[2] = {-1, -1}; /* not begun, begun */
    double longest[2] = {0, 0};
    for (int p = 0; p < w->comm->group.count; p++) {
        int rank = ndp_comm_world_rank(w->comm, p);
        if (ndp_inquiry_is_near(t->inquiry, rank))
            continue;
        bool begun = has_begun(t, rank);
        double silence = ndp_inquiry_silence(t->inquiry, rank);
        if (silence >= (begun ? SILENT_SECONDS : seconds) && (silent[begun] < 0 || silence > longest[begun])) {
            silent[begun] = rank;
            longest[begun] = silence;
        }
    }
    return silent[0] >= 0 ? silent[0] : silent[1];
}

/* The others are asked one after the other, from the next one on, until one has not come; after a whole circle one a
 * look: who is silent then may have been stopped in the midst of it. */
static ndp_status search_members(ndp_watch *v, const ndp_awaited *a, const ndp_work *w, double now) {
    ndp_transport *t = w->comm->transport;
    int n = w->comm->group.count, late = -1;
    ndp_arrival it;
    for (bool more = true; more;) {
        int rank = ndp_comm_world_rank(w->comm, (w->comm->group.rank + 1 + v->member) % n);
        NDP_TRY(judge(w, rank, a, &it));
        late = it.come == NDP_COME_NO ? rank : -1;
        if (late >= 0 || (it.come == NDP_COME_UNKNOWN && now < v->until))
            break;
        v->member = (v->member + 1) % (n - 1);
        v->until = now + PATIENCE_SECONDS;
        v->circled |= v->member == 0;
        more = it.come == NDP_COME_YES && !v->circled;
    }
    ndp_journal_await(&t->journals[t->rank], late >= 0 ? late : find_silent(w, SILENT_SECONDS), late >= 0 ? it.in : 0);
    return NDP_OK;
}

ndp_status ndp_watchdog_search(ndp_watch *v, const ndp_awaited *a, const ndp_work *w, double now) {
    if (now < v->next)
        return NDP_OK;
    if (v->until <= 0)
        v->until = now + PATIENCE_SECONDS;
    return ndp_work_is_message(w) ? search_sender(a, w) : search_members(v, a, w, now);
}

/* ---- rings ---- */

/* From this rank along "waits for", back to it. Each step is certain by itself: rank k sleeps until k + 1 begins
 * something, which k + 1 does not in the very wait that it is in. So the first of them to wake up would have to wait
 * for another to wake up before, however old what was heard of each of them is. */
ndp_status ndp_watchdog_look(ndp_watch *v, ndp_transport *t, double now) {
    text s = {.n = 0};
    int rank = t->rank;
    bool certain = true;
    if (now < v->next)
        return NDP_OK;
    v->next = now + LOOK_SECONDS;
    uint32_t in = ndp_journal_read(&t->journals[rank]).waits, first = in;
    for (int k = 0; k < RING; k++) {
        ndp_standing a = standing_of(t, rank);
        if (!a.waiting || a.awaits < 0)
            return NDP_OK;
        certain &= a.waits == in; /* a guess has 0 there, which is nobody's */
        add(&s, "; ");
        add_rank(&s, t, rank);
        add(&s, " ");
        add_standing(&s, &a);
        add(&s, ", for rank %d", a.awaits);
        in = a.awaits_in;
        rank = a.awaits;
        if (rank == t->rank)
            break;
        NDP_TRY(ask(t, rank));
    }
    if (!certain || rank != t->rank || in != first)
        return NDP_OK;
    return NDP_FAIL(NDP_ECOMM, "ranks wait for each other: they begin operations in another order%s", s.data);
}

/* ---- time-outs ---- */

/* Who holds up `rank`: along "waits for" to one that does not wait. */
static int find_cause(const ndp_transport *t, int rank) {
    for (int k = 0; k < RING; k++) {
        int next = standing_of(t, rank).awaits;
        if (next < 0 || next == t->rank)
            break;
        rank = next;
    }
    return rank;
}

/* Where it is, as far as that can be known here. */
static void add_whereabouts(text *s, const ndp_transport *t, int rank) {
    ndp_standing a = standing_of(t, rank);
    double silence = ndp_inquiry_silence(t->inquiry, rank);
    ndp_record last;
    char what[160];
    if (a.known || ndp_inquiry_is_near(t->inquiry, rank))
        add_standing(s, &a);
    else if (ndp_journal_last_with(&t->journals[t->rank], rank, &last))
        add(s, "was last met in %s of group %s, %.1f s ago", ndp_record_text(&last, what, sizeof what), last.group,
            ndp_now() - last.ended);
    else
        add(s, "was never met");
    if (a.waiting && ndp_now() - a.looked >= SILENT_SECONDS)
        add(s, ", and is stopped: it has not looked for %.1f s", ndp_now() - a.looked);
    else if (silence >= PATIENCE_SECONDS)
        add(s, ", and has not answered for %.1f s (it computes, is stopped or gone)", silence);
}

ndp_status ndp_watchdog_expired(const ndp_work *w, int member) {
    const ndp_transport *t = w->comm->transport;
    int late = member < 0 ? standing_of(t, t->rank).awaits : ndp_comm_world_rank(w->comm, member);
    if (late < 0)
        late = find_silent(w, 0);
    int cause = late < 0 ? -1 : find_cause(t, late);
    text s = {.n = 0};
    ndp_standing me = standing_of(t, t->rank);
    add_rank(&s, t, t->rank);
    add(&s, " waited %g s in %s of group %s and ", t->timeout, ndp_work_kind_name(w->kind), w->comm->name);
    if (late < 0) {
        add(&s, "all the others have begun it, but it does not end: ");
    } else {
        add_rank(&s, t, late);
        bool near = ndp_inquiry_is_near(t->inquiry, late);
        add(&s, !near && has_begun(t, late) ? " has begun it and fell silent: it " : " did not come: it ");
        add_whereabouts(&s, t, late);
        if (cause != late) {
            add(&s, ", held up by ");
            add_rank(&s, t, cause);
            add(&s, ", which ");
            add_whereabouts(&s, t, cause);
        }
        add(&s, "; ");
    }
    add_waiting(&s, w);
    add(&s, ", rank %d ", t->rank);
    add_standing(&s, &me);
    return NDP_FAIL(NDP_ECOMM, "%s; NDP_COMM_TIMEOUT sets the limit in seconds", s.data);
}
