/* Waiting at a gate, for peers whose memory this rank shares (mpi_plain.c waits for all others).
 *
 * First the rank spins and yields, since most operations are met within 0.2 ms. Then it enters its wait in its journal
 * and sleeps on a futex. Where ranks take turns on one thread (base/turns.h), it passes its turn instead of both. Each
 * time it wakes it polls once, in this order: the edge to the peer, the gate, failures, requests of other nodes, the
 * time limit, its progress functions, cycles. The order matters: the peer's wait is read before the gate is checked,
 * and `left` too, so that a gate not reached then is certain (watchdog.c, invariant 4). */
#include "comm/watch/wait.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/turns.h"
#include "comm/watch/health.h"
#include "comm/watch/state_query.h"
#include "comm/watch/watchdog.h"
#include "comm/watch/waypoints.h"

#include <limits.h>
#include <linux/futex.h>
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    POLLS_PER_YIELD = 64,
    YIELDS = 400,        /* about 0.2 ms: longer than ranks need to meet in a collective */
    YIELDS_CROWDED = 20, /* every yield takes a core from a rank that has work */
    SLEEP_MS = 50,       /* how late a sleeping rank may notice a failure */
    NAP_MS = 1,          /* and that it can do its share of another operation */
};

/* With more work than cores a yield may last a time slice; a long wait has to show up in the journal anyway. */
#define SPIN_SECONDS 5e-3

/* ---- gates ---- */

/* Shared between processes, so not FUTEX_PRIVATE. A spurious return is fine: the caller checks again. */
static void futex_sleep(_Atomic uint32_t *word, uint32_t seen, int ms) {
    struct timespec limit = {.tv_nsec = ms * 1000000L};
    syscall(SYS_futex, word, FUTEX_WAIT, seen, &limit, NULL, 0);
}

void ndp_gate_set(ndp_gate *g, uint32_t value) {
    atomic_store(&g->value, value);
    if (atomic_load(&g->sleepers))
        syscall(SYS_futex, &g->value, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* *done, or an error once it is certain that the gate will not be reached. */
static ndp_status check_gate(ndp_gate *g, uint32_t value, const ndp_work *w, int member, bool *done) {
    ndp_health *h = w->comm->transport->health;
    int rank = ndp_comm_world_rank(w->comm, member);
    /* `left` before the gate: a rank that leaves has set all its gates before. */
    bool left = atomic_load(&h->of[rank].left);
    *done = ndp_gate_reached(g, value);
    if (*done)
        return NDP_OK;
    NDP_TRY(ndp_health_check(h));
    return left ? ndp_watchdog_left(w, rank) : NDP_OK;
}

static ndp_status sleep_until(ndp_gate *g, uint32_t value, const ndp_work *w, int member, int own) {
    ndp_transport *t = w->comm->transport;
    ndp_journal *journal = &t->journals[t->rank];
    int rank = ndp_comm_world_rank(w->comm, member);
    double now = ndp_now(), begun = now;
    for (ndp_watchdog watchdog = {.next = now};; now = ndp_now()) {
        uint32_t seen = atomic_load(&g->value), peer_wait = ndp_watchdog_peer_wait(&watchdog, t, rank);
        bool done;
        NDP_TRY(check_gate(g, value, w, member, &done));
        if (done)
            return NDP_OK;
        ndp_journal_set_blocked_on(journal, rank, peer_wait);
        NDP_TRY(ndp_state_query_serve(t->state_query, NULL));
        NDP_TRY(ndp_watchdog_check_limit(w, member, begun, now));
        NDP_TRY(ndp_progress_fns_run(t));
        ndp_waypoints_poll(t, now);
        NDP_TRY(ndp_watchdog_find_cycle(&watchdog, t, now));
        if (!ndp_turn_pass())
            futex_sleep(&g->value, seen, t->pending_shares > own ? NAP_MS : SLEEP_MS);
    }
}

ndp_status ndp_gate_wait(ndp_gate *g, uint32_t value, const ndp_work *w, int member, int own) {
    if (ndp_gate_reached(g, value))
        return NDP_OK;
    ndp_transport *t = w->comm->transport;
    int yields = t->crowded ? YIELDS_CROWDED : YIELDS;
    double limit = ndp_now() + SPIN_SECONDS;
    for (int i = 0; i < yields && (i % 8 || ndp_now() < limit);) {
        for (int k = 0; k < POLLS_PER_YIELD; k++)
            if (ndp_gate_reached(g, value))
                return NDP_OK;
        if (t->pending_shares > own)
            NDP_TRY(ndp_progress_fns_run(t));
        if (ndp_turn_pass())
            continue;
        sched_yield();
        i++;
    }
    ndp_journal *journal = &t->journals[t->rank];
    atomic_fetch_add(&g->sleepers, 1);
    ndp_journal_wait_begin(journal, w, ndp_comm_world_rank(w->comm, member));
    ndp_status st = sleep_until(g, value, w, member, own);
    ndp_journal_wait_end(journal);
    atomic_fetch_sub(&g->sleepers, 1);
    return st;
}

/* ---- progress functions ---- */

void ndp_progress_fn_add(ndp_transport *t, ndp_progress_fn *f) {
    f->next = t->progress_fns;
    t->progress_fns = f;
}

void ndp_progress_fn_remove(ndp_transport *t, ndp_progress_fn *f) {
    ndp_progress_fn **at = &t->progress_fns;
    while (*at && *at != f)
        at = &(*at)->next;
    if (*at)
        *at = f->next;
}

ndp_status ndp_progress_fns_run(ndp_transport *t) {
    for (ndp_progress_fn *f = t->pending_shares ? t->progress_fns : NULL; f; f = f->next)
        NDP_TRY(f->run(f));
    return NDP_OK;
}

/* ---- the limits of a wait ---- */

ndp_status ndp_wait_limit(double *out) {
    const char *text = getenv("NDP_COMM_TIMEOUT");
    double timeout = NDP_WAIT_SECONDS;
    if (text && *text) {
        char *end;
        timeout = strtod(text, &end);
        NDP_CHECK(*end == '\0' && isfinite(timeout) && timeout > 0,
                  "NDP_COMM_TIMEOUT is \"%s\", expected a positive number of seconds", text);
    }
    *out = timeout;
    return NDP_OK;
}

ndp_status ndp_wait_setup(ndp_transport *t, int ranks) {
    NDP_TRY(ndp_wait_limit(&t->timeout));
    t->crowded = ndp_cpu_cores() < ranks;
    return NDP_OK;
}
