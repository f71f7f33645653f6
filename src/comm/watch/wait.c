#include "comm/watch/wait.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "comm/watch/inquiry.h"
#include "comm/watch/watchdog.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    LOOKS_PER_YIELD = 64,
    YIELDS = 400,        /* about 0.2 ms: longer than a collective of this room takes to meet */
    YIELDS_CROWDED = 20, /* every yield takes a core from a rank that has work */
    SLEEP_MS = 50,       /* how late a sleeper may notice a failure */
    NAP_MS = 1,          /* and that it can do its share of another operation */
    DRAIN_SECONDS = 5,
};

/* On a machine with more work than cores a yield may last a time slice: who waits for long is to be seen asleep. */
#define SPIN_SECONDS 5e-3

/* After `failed` is set nobody enters, so one look at each rank is enough. A rank that was killed inside never leaves:
 * hence the limit. */
static void drain(ndp_health *h) {
    double deadline = ndp_now() + DRAIN_SECONDS;
    for (int r = 0; r < h->world; r++)
        while (atomic_load(&h->of[r].inside) && ndp_now() < deadline)
            sched_yield();
}

/* A rank has failed: until it is written down which, and why. */
static void await_words(const ndp_health *h) {
    while (atomic_load(&h->failed) != 2)
        sched_yield();
}

void ndp_health_fail(ndp_health *h, int rank, const char *message) {
    uint32_t nobody = 0;
    if (atomic_compare_exchange_strong(&h->failed, &nobody, 1)) {
        int owner = rank, length = 0;
        if (sscanf(message, "rank %d: %n", &owner, &length) != 1 || length == 0 || owner < 0 || owner >= h->world) {
            owner = rank;
            length = 0;
        }
        h->rank = owner;
        snprintf(h->message, sizeof h->message, "%s", message + length);
        atomic_store(&h->failed, 2);
    }
    await_words(h);
    drain(h);
}

ndp_status ndp_health_check(ndp_health *h) {
    if (atomic_load(&h->failed) == 0)
        return NDP_OK;
    await_words(h);
    drain(h);
    return NDP_FAIL(NDP_ECOMM, "rank %d failed: %s", h->rank, h->message);
}

ndp_status ndp_health_enter(ndp_health *h, int rank) {
    atomic_store(&h->of[rank].inside, 1);
    if (atomic_load(&h->failed) == 0)
        return NDP_OK;
    atomic_store(&h->of[rank].inside, 0);
    return ndp_health_check(h);
}

void ndp_health_leave(ndp_health *h, int rank) { atomic_store(&h->of[rank].inside, 0); }

/* Shared between processes, so not FUTEX_PRIVATE. A spurious return is fine: the callers look again. */
static void futex_sleep(_Atomic uint32_t *word, uint32_t seen, int ms) {
    struct timespec limit = {.tv_nsec = ms * 1000000L};
    syscall(SYS_futex, word, FUTEX_WAIT, seen, &limit, NULL, 0);
}

void ndp_gate_set(ndp_gate *g, uint32_t value) {
    atomic_store(&g->value, value);
    if (atomic_load(&g->sleepers))
        syscall(SYS_futex, &g->value, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void ndp_duty_add(ndp_transport *t, ndp_duty *d) {
    d->next = t->duties;
    t->duties = d;
}

void ndp_duty_remove(ndp_transport *t, ndp_duty *d) {
    ndp_duty **at = &t->duties;
    while (*at && *at != d)
        at = &(*at)->next;
    if (*at)
        *at = d->next;
}

ndp_status ndp_duties_run(ndp_transport *t) {
    for (ndp_duty *d = t->owed ? t->duties : NULL; d; d = d->next)
        NDP_TRY(d->run(d));
    return NDP_OK;
}

/* One look: *done, or an error once it is certain that the gate will not be reached. */
static ndp_status look(ndp_gate *g, uint32_t value, const ndp_work *w, int member, bool *done) {
    ndp_health *h = w->comm->transport->health;
    int rank = ndp_comm_world_rank(w->comm, member);
    /* `left` before the gate: a rank that leaves has set all its gates before. */
    bool left = atomic_load(&h->of[rank].left);
    *done = ndp_gate_reached(g, value);
    if (*done)
        return NDP_OK;
    NDP_TRY(ndp_health_check(h));
    if (left)
        return ndp_watchdog_left(w, rank);
    return NDP_OK;
}

static ndp_status sleep_until(ndp_gate *g, uint32_t value, const ndp_work *w, int member, int own) {
    ndp_transport *t = w->comm->transport;
    ndp_journal *journal = &t->journals[t->rank];
    int rank = ndp_comm_world_rank(w->comm, member);
    double now = ndp_now(), deadline = now + t->timeout;
    for (ndp_watch watch = {.next = now};; now = ndp_now()) {
        uint32_t seen = atomic_load(&g->value), asleep = ndp_watchdog_asleep(&watch, t, rank);
        bool done;
        NDP_TRY(look(g, value, w, member, &done));
        if (done)
            return NDP_OK;
        ndp_journal_await(journal, rank, asleep);
        NDP_TRY(ndp_inquiry_serve(t->inquiry, NULL));
        if (now > deadline)
            return ndp_watchdog_expired(w, member);
        NDP_TRY(ndp_duties_run(t));
        ndp_journal_look(journal, now);
        NDP_TRY(ndp_watchdog_look(&watch, t, now));
        futex_sleep(&g->value, seen, t->owed > own ? NAP_MS : SLEEP_MS);
    }
}

ndp_status ndp_gate_wait(ndp_gate *g, uint32_t value, const ndp_work *w, int member, int own) {
    if (ndp_gate_reached(g, value))
        return NDP_OK;
    ndp_transport *t = w->comm->transport;
    int yields = t->crowded ? YIELDS_CROWDED : YIELDS;
    double limit = ndp_now() + SPIN_SECONDS;
    for (int i = 0; i < yields && (i % 8 || ndp_now() < limit); i++) {
        for (int k = 0; k < LOOKS_PER_YIELD; k++)
            if (ndp_gate_reached(g, value))
                return NDP_OK;
        if (t->owed > own)
            NDP_TRY(ndp_duties_run(t));
        sched_yield();
    }
    ndp_journal *journal = &t->journals[t->rank];
    atomic_fetch_add(&g->sleepers, 1);
    ndp_journal_sleep(journal, w, ndp_comm_world_rank(w->comm, member));
    ndp_status st = sleep_until(g, value, w, member, own);
    ndp_journal_wake(journal);
    atomic_fetch_sub(&g->sleepers, 1);
    return st;
}

ndp_status ndp_wait_setup(ndp_transport *t, int ranks) {
    const char *text = getenv("NDP_COMM_TIMEOUT");
    double timeout = 300;
    if (text && *text) {
        char *end;
        timeout = strtod(text, &end);
        NDP_CHECK(*end == '\0' && isfinite(timeout) && timeout > 0,
                  "NDP_COMM_TIMEOUT is \"%s\"; it takes a positive number of seconds", text);
    }
    t->timeout = timeout;
    t->crowded = ndp_cpu_cores() < ranks;
    return NDP_OK;
}
