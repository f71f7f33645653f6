#include "comm/watchdog.h"
#include "base/clock.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define LOOK_SECONDS 0.4

static ndp_standing standing_of(const ndp_transport *t, int rank) { return ndp_journal_read(&t->journals[rank]); }

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

/* ---- rings ---- */

/* The ranks from this one along "waits for" back to it; n = 0 where the way ends at one that works. */
static void find_ring(const ndp_transport *t, ndp_watch *v) {
    int rank = t->rank;
    for (v->n = 0; v->n < NDP_WATCHDOG_RING;) {
        ndp_standing s = standing_of(t, rank);
        if (!s.waiting || s.awaits < 0)
            break;
        v->rank[v->n] = rank;
        v->waits[v->n] = s.waits;
        v->seen[v->n++] = s.looks;
        rank = s.awaits;
        if (rank == t->rank)
            return;
    }
    v->n = 0;
}

static bool is_same_ring(const ndp_watch *now, const ndp_watch *before) {
    bool same = now->n > 0 && now->n == before->n;
    for (int k = 0; k < now->n && same; k++)
        same = now->rank[k] == before->rank[k] && now->waits[k] == before->waits[k];
    return same;
}

/* All ranks of the ring have looked twice since. */
static bool have_looked(const ndp_watch *now, const ndp_watch *before) {
    bool looked = true;
    for (int k = 0; k < now->n; k++)
        looked &= now->seen[k] - before->seen[k] >= 2;
    return looked;
}

static ndp_status ring_error(const ndp_transport *t, const ndp_watch *v) {
    text s = {.n = 0};
    for (int k = 0; k < v->n; k++) {
        ndp_standing a = standing_of(t, v->rank[k]);
        add(&s, "; rank %d ", v->rank[k]);
        add_standing(&s, &a);
        add(&s, ", for rank %d", a.awaits);
    }
    return NDP_FAIL(NDP_ECOMM, "ranks wait for each other: they begin operations in another order%s", s.data);
}

/* Asleep in the same waits, each rank has looked twice, and then twice again. In the first time it did what it owed to
 * the others (ndp_duty: all that had been possible), in the second it saw that this did not help. Nothing else that a
 * sleeping rank does can wake another. */
ndp_status ndp_watchdog_look(ndp_watch *v, ndp_transport *t, double now) {
    if (now < v->next)
        return NDP_OK;
    ndp_watch seen = {.next = now + LOOK_SECONDS};
    find_ring(t, &seen);
    if (is_same_ring(&seen, v)) {
        seen.looks = v->looks;
        if (!have_looked(&seen, v))
            memcpy(seen.seen, v->seen, sizeof seen.seen);
        else if (++seen.looks == 2)
            return ring_error(t, &seen);
    }
    *v = seen;
    return NDP_OK;
}

/* ---- time-outs ---- */

/* Who holds up `rank`: along "waits for" to one that does not wait. */
static int find_cause(const ndp_transport *t, int rank) {
    for (int k = 0; k < t->world; k++) {
        int next = standing_of(t, rank).awaits;
        if (next < 0 || next == t->rank)
            break;
        rank = next;
    }
    return rank;
}

ndp_status ndp_watchdog_expired(const ndp_work *w, int member) {
    const ndp_transport *t = w->comm->transport;
    int late = member < 0 ? -1 : ndp_comm_world_rank(w->comm, member), cause = late < 0 ? -1 : find_cause(t, late);
    text s = {.n = 0};
    ndp_standing me = standing_of(t, t->rank), it;
    add(&s, "rank %d waited %g s in %s of group %s and ", t->rank, t->timeout, ndp_work_kind_name(w->kind),
        w->comm->name);
    if (late < 0) {
        add(&s, "the others did not come: rank %d ", t->rank);
    } else {
        it = standing_of(t, late);
        add(&s, "rank %d did not come: it ", late);
        add_standing(&s, &it);
        if (cause != late) {
            it = standing_of(t, cause);
            add(&s, ", held up by rank %d, which ", cause);
            add_standing(&s, &it);
        }
        add(&s, "; ");
        add_waiting(&s, w);
        add(&s, ", rank %d ", t->rank);
    }
    add_standing(&s, &me);
    return NDP_FAIL(NDP_ECOMM, "%s; NDP_COMM_TIMEOUT sets the limit in seconds", s.data);
}
