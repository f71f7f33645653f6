/* The number of a waypoint is its place in the ring. A queue is never behind by as many as the ring has
 * (device_wait.c), so the ring has what the word says. */
#include "comm/watch/waypoints.h"
#include "comm/watch/device_wait.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the handle ---- */

/* A device that cannot write words says so at the first. */
static ndp_status try_word(ndp_transport *t, uint32_t *word, bool *able) {
    const ndp_device *d = t->device;
    ndp_queue *q;
    NDP_TRY(d->queue_create(t->context, &q));
    ndp_status st = d->write_word(q, word, 0);
    *able = st == NDP_OK;
    if (st == NDP_OK)
        st = d->drain(q);
    d->queue_destroy(q);
    return st == NDP_ENOTSUP ? NDP_OK : st;
}

ndp_status ndp_waypoints_create(ndp_transport *t) {
    const ndp_device *d = t->device;
    const char *calls = getenv("NDP_GPU_CALLS");
    void *word;
    bool able;
    if (!d->write_word)
        return NDP_OK;
    NDP_TRY(d->memory_map(t->context, sizeof(uint32_t), NDP_MEMORY_HOST, &word));
    ndp_status st = try_word(t, word, &able);
    ndp_waypoints *w = st == NDP_OK && able ? calloc(1, sizeof *w) : NULL;
    if (!w) {
        d->memory_unmap(t->context, word, sizeof(uint32_t), NDP_MEMORY_HOST);
        return st == NDP_OK && able ? NDP_FAIL(NDP_ENOMEM, "not enough memory for %d waypoints", NDP_WAYPOINTS) : st;
    }
    w->word = word;
    w->each_call = calls && strcmp(calls, "1") == 0;
    w->next = t->host->waypoints;
    t->host->waypoints = t->waypoints = w;
    return NDP_OK;
}

void ndp_waypoints_destroy(ndp_transport *t) {
    ndp_waypoints *w = t->waypoints;
    if (!w)
        return;
    for (ndp_waypoints **at = &t->host->waypoints; *at; at = &(*at)->next)
        if (*at == w) {
            *at = w->next;
            break;
        }
    t->device->memory_unmap(t->context, w->word, sizeof *w->word, NDP_MEMORY_HOST);
    free(w);
    t->waypoints = NULL;
}

/* ---- submission ---- */

ndp_status ndp_waypoint_submit(ndp_transport *t, ndp_queue *q, const ndp_waypoint *at, int operations,
                               uint32_t *number) {
    ndp_waypoints *w = t->waypoints;
    if (!w)
        return NDP_OK;
    NDP_TRY(ndp_device_keep_up(t, q));
    t->host->waypoint += 1 + (t->host->waypoint == UINT32_MAX); /* 0 is none */
    ndp_waypoint *slot = &w->ring[t->host->waypoint % NDP_WAYPOINTS];
    *slot = *at;
    slot->number = w->newest = t->host->waypoint;
    slot->operations = w->operations;
    w->operations += (uint32_t)operations;
    if (number)
        *number = slot->number;
    return t->device->write_word(q, w->word, slot->number);
}

/* ---- where the queue is ---- */

static const ndp_waypoint *find(const ndp_waypoints *w, uint32_t number) {
    const ndp_waypoint *slot = &w->ring[number % NDP_WAYPOINTS];
    return number && slot->number == number ? slot : NULL;
}

const ndp_waypoint *ndp_waypoint_seen(const ndp_waypoints *w) { return w ? find(w, w->reached) : NULL; }

uint32_t ndp_waypoints_ahead(const ndp_waypoints *w) {
    const ndp_waypoint *at = w ? find(w, __atomic_load_n(w->word, __ATOMIC_ACQUIRE)) : NULL;
    return w->operations - (at ? at->operations : 0);
}

void ndp_waypoints_look(ndp_waypoints *w, double now) {
    uint32_t word = __atomic_load_n(w->word, __ATOMIC_ACQUIRE);
    if (word == w->reached)
        return;
    w->reached = word;
    w->since = now;
}

double ndp_waypoints_went_on(ndp_transport *host, double now) {
    double last = 0;
    for (ndp_waypoints *w = host->waypoints; w; w = w->next) {
        ndp_waypoints_look(w, now);
        last = fmax(last, w->since);
    }
    return last;
}

static ndp_device_place place_of(const ndp_waypoint *at) {
    ndp_device_place p = {.at = at->at, .waypoint = at->number};
    snprintf(p.doing, sizeof p.doing, "%s%s", at->waits ? "wait " : "", at->doing);
    return p;
}

bool ndp_waypoints_place(const ndp_waypoints *w, double now, ndp_device_place *out) {
    const ndp_waypoint *at = ndp_waypoint_seen(w);
    if (!at)
        return false;
    *out = place_of(at);
    out->idle = at->number == w->newest && at->operations == w->operations; /* none followed it */
    out->since = w->since;
    out->seen = now;
    return true;
}

bool ndp_waypoints_submitted(const ndp_waypoints *w, ndp_device_place *out) {
    const ndp_waypoint *at = w ? find(w, w->newest) : NULL;
    if (at)
        *out = place_of(at);
    return at != NULL;
}

/* Steps of two engines do not overlap, so the one that has come furthest is at work. */
void ndp_waypoints_publish(ndp_transport *host, double now) {
    const ndp_waypoints *last = NULL;
    ndp_device_place p;
    for (ndp_waypoints *w = host->journals ? host->waypoints : NULL; w; w = w->next) {
        ndp_waypoints_look(w, now);
        if (!last || (int32_t)(w->reached - last->reached) > 0)
            last = w;
    }
    if (ndp_waypoints_place(last, now, &p))
        ndp_journal_set_place(&host->journals[host->rank], &p);
}

void ndp_waypoints_poll(ndp_transport *t, double now) {
    ndp_waypoints_publish(t->host ? t->host : t, now);
    ndp_journal_poll(&t->journals[t->rank], now);
}
