/* Waiting for a device, which may itself wait for other ranks.
 *
 * The host asks whether a mark of the queue has passed (ndp_device.passed), first without a pause, then with pauses
 * that are a small part of the time waited so far. So it is free to do what it does in any wait: its share of
 * operations of the host, and to see that another rank has failed, that an operation of the device's transport has met
 * an error, or that the time limit is over. Before the first pause it does none of that, so a short wait costs no more
 * than a drain.
 *
 * In the journal a rank is inside a wait, as if its host were, while its device is stuck in the wait of one operation:
 * each such stay has a number of its own (watchdog.c, invariant 2). Invariants 3 and 4 hold for it too. A rank's queue
 * begins nothing while it stays at one waypoint, and "has not begun" means that the begin is after that waypoint. So a
 * cycle of such waits is certain, although the host sees late that its queue has gone on.
 *
 * The time limit is for a stay at one waypoint: a step may last as long as it likes. It starts when the host saw one of
 * its queues go on last, in whichever look: several functions look, and each sees only what is new since the one
 * before. It does not start before the wait, since a queue without work stays where it is. In the wait of an operation
 * the devices of the ranks that keep it there count as well (ndp_watchdog_check_limit). A rank that gives up records
 * why, and ends the operations of its device's transport, so that no queue waits forever. */
#include "comm/watch/device_wait.h"
#include "base/clock.h"
#include "base/turns.h"
#include "comm/watch/health.h"
#include "comm/watch/lookout.h"
#include "comm/watch/op_wait.h"
#include "comm/watch/state_query.h"
#include "comm/watch/wait.h"
#include "comm/watch/waypoints.h"

#include <math.h>
#include <stdio.h>

#define SPIN_SECONDS 200e-6
#define LOOK_SECONDS 0.05  /* between two looks at the other ranks */
#define STUCK_SECONDS 0.05 /* in the wait of an operation, before that is in the journal */
#define END_SECONDS 0.5    /* for a queue to end after a failure: less than a launcher waits for its rank (launch/) */

typedef struct device_wait {
    ndp_transport *t;
    ndp_queue *queue;
    ndp_mark end;   /* of what is waited for */
    uint32_t ahead; /* it is enough that so many operations are ahead of the queue; 0: all must have run */
    double begun;
    double moved;   /* when a queue of the rank went on last, at least `begun` */
    double next;    /* look */
    bool on_device; /* in the journal */
    uint32_t stuck; /* the waypoint of `wait`; 0: none */
    ndp_op_wait wait;
} device_wait;

/* ---- other ranks ---- */

static ndp_journal *journal_of(const device_wait *v) { return &v->t->host->journals[v->t->rank]; }

static void follow_queues(device_wait *v, double now) {
    v->moved = fmax(v->begun, ndp_waypoints_went_on(v->t->host, now));
}

/* Keeps the rank's wait in the journal that in which its device is, by the place that was published: if the queue has
 * gone on since, that wait may be after begins which a reader, by the place, would take for not reached. */
static void enter_wait(device_wait *v, double now) {
    const ndp_waypoint *at = ndp_waypoint_seen(v->t->waypoints);
    uint32_t stuck = at && at->awaited.comm && now - v->moved >= STUCK_SECONDS ? at->number : 0;
    if (stuck == v->stuck)
        return;
    if (v->stuck)
        ndp_op_wait_end(&v->wait);
    if (stuck)
        ndp_op_wait_begin(&v->wait, &at->awaited, &at->at, false);
    v->stuck = stuck;
}

static ndp_status watch(device_wait *v, double now) {
    ndp_transport *t = v->t;
    if (!v->on_device)
        ndp_journal_set_on_device(journal_of(v), true);
    v->on_device = true;
    ndp_waypoints_poll(t->host, now); /* t may have no journals (staged.c) */
    follow_queues(v, now);
    enter_wait(v, now);
    NDP_TRY(ndp_state_query_serve(t->state_query, v->stuck ? &v->wait.expected : NULL));
    NDP_TRY(ndp_lookout_check(t));
    return v->stuck ? ndp_op_wait_look(&v->wait, now) : NDP_OK;
}

/* An error that an operation of the device's transport has met by itself; which one, NCCL does not say. */
static ndp_status check_operations(ndp_transport *t) {
    ndp_device_place p;
    char text[128];
    ndp_status st = t->ops->check ? t->ops->check(t) : NDP_OK;
    bool ours = st != NDP_OK && atomic_load(&t->health->failed) == 0;
    if (!ours || !ndp_waypoints_place(t->waypoints, 0, &p))
        return st;
    return NDP_FAIL(st, "%s, at %s", ndp_error_message(), ndp_place_text(&p, text, sizeof text));
}

static ndp_status check_limit(const device_wait *v, double now) {
    const ndp_transport *t = v->t;
    if (v->stuck)
        return ndp_op_wait_check_limit(&v->wait, v->moved, now);
    if (t->timeout <= 0 || now - v->moved <= t->timeout)
        return NDP_OK;
    return ndp_watchdog_device_timeout(t->host, now - v->moved);
}

static ndp_status look(device_wait *v, double now) {
    ndp_transport *t = v->t;
    follow_queues(v, now);
    if (t->health)
        NDP_TRY(ndp_health_check(t->health));
    NDP_TRY(ndp_progress_fns_run(t));
    NDP_TRY(ndp_progress_fns_run(t->host));
    if (now < v->next)
        return NDP_OK;
    v->next = now + LOOK_SECONDS;
    NDP_TRY(check_operations(t));
    if (t->host->journals)
        NDP_TRY(watch(v, now));
    return check_limit(v, now);
}

static void leave_journal(device_wait *v) {
    if (v->stuck)
        ndp_op_wait_end(&v->wait);
    if (v->on_device)
        ndp_journal_set_on_device(journal_of(v), false);
}

/* ---- waiting ---- */

/* Longer the longer nothing happens, but never by more than 1/64 of that time. */
static void nap(double waited) { ndp_nap(fmin(fmax(waited / 64, 10e-6), 500e-6)); }

static ndp_status poll_until(device_wait *v) {
    const ndp_device *d = v->t->device;
    v->begun = v->moved = ndp_now();
    for (;;) {
        bool passed;
        NDP_TRY(d->passed(v->queue, &v->end, &passed));
        if (passed || (v->ahead && ndp_waypoints_ahead(v->t->waypoints) <= v->ahead))
            return NDP_OK;
        double now = ndp_now();
        if (now - v->begun < SPIN_SECONDS && !v->t->crowded)
            continue;
        NDP_TRY(look(v, now));
        if (now - v->begun < SPIN_SECONDS)
            ndp_yield();
        else
            nap(now - v->moved);
    }
}

/* Errors of other ranks and of their operations are explained already. */
static ndp_status add_place(ndp_transport *t, ndp_status st) {
    ndp_waypoints *w = t->waypoints;
    ndp_device_place p;
    char text[128];
    if (st != NDP_EIO || !w || w->explained)
        return st;
    ndp_waypoints_look(w, ndp_now());
    ndp_waypoints_publish(t->host, ndp_now());
    if (!ndp_waypoints_place(w, 0, &p))
        return st;
    w->explained = true;
    return NDP_FAIL(st, "%s, at %s%s", ndp_error_message(), ndp_place_text(&p, text, sizeof text),
                    w->each_call ? "" : " (NDP_GPU_CALLS=1 names the call)");
}

/* The rank ends the run for all. Returns `st`, with its message. */
static ndp_status give_up(ndp_transport *t, ndp_status st) {
    char why[1024];
    snprintf(why, sizeof why, "%s", ndp_error_message());
    ndp_journal_write(t->host);
    if (t->health)
        ndp_health_fail(t->health, t->rank, why);
    if (t->ops->abort)
        t->ops->abort(t, why);
    ndp_error_set(st, why);
    return st;
}

/* A device that has failed does nothing more, while peers may wait for it in any operation. */
static ndp_status end_by_device(ndp_transport *t, ndp_status st) { return st == NDP_EIO ? give_up(t, st) : st; }

static ndp_status wait_for(ndp_transport *t, ndp_queue *q, uint32_t ahead) {
    device_wait v = {.t = t, .queue = q, .ahead = ahead};
    ndp_status st = t->device->mark(q, &v.end);
    if (st == NDP_OK)
        st = poll_until(&v);
    ndp_waypoints_publish(t->host, ndp_now());
    leave_journal(&v);
    if (st == NDP_OK)
        return NDP_OK;
    return give_up(t, add_place(t, st));
}

ndp_status ndp_device_keep_up(ndp_transport *t, ndp_queue *q) {
    if (ndp_waypoints_ahead(t->waypoints) <= NDP_OPERATIONS_AHEAD)
        return NDP_OK;
    return wait_for(t, q, NDP_OPERATIONS_AHEAD * 3 / 4);
}

/* The drain after the wait only counts it, and finds what failed last. */
ndp_status ndp_transport_drain(ndp_transport *t, ndp_queue *q) {
    NDP_TRY(wait_for(t, q, 0));
    return ndp_transport_explain(t, t->device->drain(q));
}

/* Once one queue did not end, there is no waiting for others. */
bool ndp_transport_settles(ndp_transport *t, ndp_queue *q) {
    ndp_mark end;
    bool passed = false;
    double limit = ndp_now() + (t->stuck ? 0 : END_SECONDS);
    if (t->device->mark(q, &end) != NDP_OK)
        return true;
    while (t->device->passed(q, &end, &passed) == NDP_OK && !passed) {
        if (ndp_now() > limit) {
            t->stuck = true;
            return false;
        }
        ndp_nap(1e-3);
    }
    return true;
}

/* ---- where it is ---- */

ndp_status ndp_transport_at(ndp_transport *t, ndp_queue *q, const ndp_queue_place *at) {
    ndp_waypoint w = {.at = {.instr = at->instr, .call = at->call}, .doing = at->doing};
    snprintf(w.at.what, sizeof w.at.what, "%s", at->what);
    return ndp_waypoint_submit(t, q, &w, at->operations, NULL);
}

bool ndp_transport_names_calls(const ndp_transport *t) { return t->waypoints && t->waypoints->each_call; }

ndp_status ndp_transport_explain(ndp_transport *t, ndp_status st) { return end_by_device(t, add_place(t, st)); }

ndp_status ndp_transport_explain_submission(ndp_transport *t, ndp_status st) {
    ndp_device_place p;
    char text[128];
    bool explained = t->waypoints && t->waypoints->explained;
    st = add_place(t, st);
    if (st != NDP_OK && st != NDP_ECOMM && !explained && ndp_waypoints_submitted(t->waypoints, &p))
        st = NDP_FAIL(st, "%s; the host was submitting %s", ndp_error_message(), ndp_place_text(&p, text, sizeof text));
    return end_by_device(t, st);
}
