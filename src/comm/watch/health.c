/* The first failure is recorded and all others are dropped: `failed` goes from 0 to 1 by one compare-and-swap, and to 2
 * once rank and message are written. Invariant: no function here returns an error before every rank is out of the
 * others' memory (drain). */
#include "comm/watch/health.h"
#include "base/clock.h"
#include "base/turns.h"

#include <stdio.h>

enum { DRAIN_SECONDS = 5 };

/* No rank enters once `failed` is set, so one check of each rank is enough. A rank that was killed inside never leaves:
 * hence the limit. */
static void drain(ndp_health *h) {
    double deadline = ndp_now() + DRAIN_SECONDS;
    for (int r = 0; r < h->world; r++)
        while (atomic_load(&h->of[r].inside) && ndp_now() < deadline)
            ndp_yield();
}

/* A rank has failed: waits until its number and message are written. */
static void wait_for_message(const ndp_health *h) {
    while (atomic_load(&h->failed) != 2)
        ndp_yield();
}

/* `reports` from one state to another, once no other rank writes or reads the report; false: it is in a third state, or
 * a rank was killed meanwhile. */
static bool change_reports(ndp_health *h, uint32_t from, uint32_t to) {
    uint32_t now = from;
    double deadline = ndp_now() + DRAIN_SECONDS;
    while (!atomic_compare_exchange_strong(&h->reports, &now, to)) {
        if (now != 1 || ndp_now() > deadline)
            return false;
        now = from;
        ndp_yield();
    }
    return true;
}

void ndp_health_report(ndp_health *h, int rank, const char *message) {
    if (message && change_reports(h, 0, 1)) { /* else another rank is before this one */
        h->reporter = rank;
        snprintf(h->report, sizeof h->report, "%s", message);
        atomic_store(&h->reports, 2);
    }
    if (!message && change_reports(h, 2, 1))
        atomic_store(&h->reports, h->reporter == rank ? 0 : 2);
}

static void record(ndp_health *h, int rank, const char *message) {
    int owner = rank, length = 0;
    if (sscanf(message, "rank %d: %n", &owner, &length) != 1 || length == 0 || owner < 0 || owner >= h->world) {
        owner = rank;
        length = 0;
    }
    h->rank = owner;
    snprintf(h->message, sizeof h->message, "%s", message + length);
}

void ndp_health_record(ndp_health *h, int rank, const char *message) {
    uint32_t none = 0;
    if (atomic_compare_exchange_strong(&h->failed, &none, 1)) {
        record(h, rank, message);
        atomic_store(&h->failed, 2);
    }
    wait_for_message(h);
}

void ndp_health_fail(ndp_health *h, int rank, const char *message) {
    ndp_health_record(h, rank, message);
    drain(h);
}

void ndp_health_fail_wait(ndp_health *h, int rank, const char *message) {
    char report[sizeof h->report + 32] = "";
    if (change_reports(h, 2, 1)) {
        snprintf(report, sizeof report, "rank %d: %s", h->reporter, h->report);
        atomic_store(&h->reports, 2);
    }
    ndp_health_fail(h, rank, *report ? report : message);
}

ndp_status ndp_health_check(ndp_health *h) {
    if (atomic_load(&h->failed) == 0)
        return NDP_OK;
    wait_for_message(h);
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
