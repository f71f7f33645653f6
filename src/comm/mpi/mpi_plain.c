/* Collectives and messages through MPI's non-blocking calls.
 *
 * A collective goes through up to three steps, each completed by make_progress, in the order of the begins:
 *
 *   collective_begin: hashes and data are sent
 *      |  ndp_mpi_match_poll: all ranks have begun the same operation (else NDP_ECOMM, naming two)
 *      |  test: MPI has moved the data
 *      v
 *   finish_next: sums the parts; an all_reduce of more than WHOLE_BYTES then gathers them (gathering)
 *      v
 *   ended
 *
 * Invariant: data are used only after the hashes agreed, since MPI may match different operations and deliver garbage.
 * A wait never sleeps, because MPI only moves data while it is called; poll_until_done does this rank's share of all
 * other operations meanwhile and, in long waits, runs the watchdog (watchdog.c). */
#include "comm/mpi/mpi_plain.h"
#include "base/clock.h"
#include "comm/watch/health.h"
#include "comm/watch/state_query.h"
#include "comm/watch/watchdog.h"
#include "comm/watch/waypoints.h"

#include <sched.h>
#include <stdlib.h>

/* A wait enters the journal after POLLS_UNRECORDED polls; then every POLLS_PER_WATCH-th one also watches the peers. */
enum { POLLS_UNRECORDED = 1024, POLLS_PER_WATCH = 64 };

/* How long a wait lasts before it sends requests to others. */
#define UNWATCHED_SECONDS 0.4

/* This rank's entry of the operation in its journal. */
static const ndp_record *record_of(const ndp_work *w) {
    const ndp_transport *t = w->comm->transport;
    return ndp_journal_record(&t->journals[t->rank], w);
}

ndp_status ndp_mpi_check(const ndp_work *w, const char *text) {
    char what[160];
    return text ? NDP_FAIL(NDP_ECOMM, "%s: MPI failed in %s: %s", w->comm->name,
                           ndp_record_text(record_of(w), what, sizeof what), text)
                : NDP_OK;
}

/* ---- collectives ---- */

static ndp_status all_gather_begin(ndp_mpi_plain *p, ndp_work *w) {
    size_t part = ndp_work_bytes(w);
    bool in_place = w->in == (char *)w->out + (size_t)w->comm->group.rank * part;
    return ndp_mpi_check(w,
                         p->api->all_gather(p->comm, in_place ? NULL : w->in, w->out, (int64_t)part, &w->request[0]));
}

/* MPI keeps the counts until it is done, and they are ints. */
static ndp_status all_to_all_begin(ndp_mpi_plain *p, ndp_mpi_pending *o) {
    ndp_work *w = &o->work;
    int n = w->comm->group.count, rank = w->comm->group.rank;
    size_t row = ndp_work_bytes(w);
    void *counts;
    if (!w->rows || row == 0)
        return ndp_mpi_check(w, p->api->all_to_all(p->comm, w->in, w->out, (int64_t)row, &w->request[0]));
    NDP_TRY(ndp_mpi_scratch_take(o, 4 * (size_t)n * sizeof(int), &counts));
    NDP_CHECK(ndp_work_handed(w, rank, n) / row <= INT32_MAX && ndp_work_got(w, n, rank) / row <= INT32_MAX,
              "an all_to_all of group %s has more than 2^31 rows", w->comm->name);
    for (int q = 0; q < n; q++) {
        ((int *)counts)[q] = (int)(ndp_work_part(w, rank, q) / row);
        ((int *)counts)[n + q] = (int)(ndp_work_part(w, q, rank) / row);
        ((int *)counts)[2 * n + q] = (int)(ndp_work_handed(w, rank, q) / row);
        ((int *)counts)[3 * n + q] = (int)(ndp_work_got(w, q, rank) / row);
    }
    return ndp_mpi_check(w, p->api->all_to_all_rows(p->comm, w->in, w->out, (int64_t)row, counts, &w->request[0]));
}

static ndp_status shift_begin(ndp_mpi_plain *p, ndp_work *w) {
    int n = w->comm->group.count, rank = w->comm->group.rank, next = (rank + 1) % n, before = (rank + n - 1) % n;
    NDP_TRY(ndp_mpi_check(w, p->api->recv(p->comm, w->out, w->count, before, NDP_TAG_SHIFT, &w->request[0])));
    return ndp_mpi_check(w, p->api->send(p->comm, w->in, w->count, next, NDP_TAG_SHIFT, &w->request[1]));
}

static ndp_status start(ndp_mpi_plain *p, ndp_mpi_pending *o) {
    const ndp_mpi_api *api = p->api;
    ndp_work *w = &o->work;
    switch (w->kind) {
    case NDP_WORK_BARRIER:
        return ndp_mpi_check(w, api->barrier(p->comm, &w->request[0]));
    case NDP_WORK_ALL_REDUCE:
        return ndp_mpi_all_reduce_begin(p, o);
    case NDP_WORK_ALL_GATHER:
        return all_gather_begin(p, w);
    case NDP_WORK_REDUCE_SCATTER:
        return ndp_mpi_reduce_scatter_begin(p, o);
    case NDP_WORK_BROADCAST:
        return ndp_mpi_check(w, api->broadcast(p->comm, w->out, w->count, w->peer, &w->request[0]));
    case NDP_WORK_ALL_TO_ALL:
        return all_to_all_begin(p, o);
    case NDP_WORK_SHIFT:
        return shift_begin(p, w);
    default:
        return NDP_FAIL(NDP_EBUG, "an operation of kind %d", w->kind);
    }
}

static ndp_mpi_pending *pending_of(ndp_mpi_plain *p, uint32_t order) {
    return &p->pending[order % NDP_SHM_OUTSTANDING];
}

static ndp_mpi_matcher matcher_of(const ndp_mpi_plain *p) {
    return (ndp_mpi_matcher){.api = p->api, .base = p->base, .comm = p->comm, .second = p->second};
}

static ndp_status collective_begin(ndp_mpi_plain *p, ndp_work *w) {
    ndp_mpi_pending *o = pending_of(p, p->begun + 1);
    o->work = *w;
    o->work.sequence = w->sequence = p->begun + 1;
    o->work.request[0] = o->work.request[1] = 0;
    o->gathering = false;
    o->agreed = false;
    ndp_mpi_matcher agree = matcher_of(p);
    NDP_TRY(ndp_mpi_check(w, ndp_mpi_match_begin(&agree, &o->match, record_of(w))));
    NDP_TRY(start(p, o));
    p->begun++;
    p->base->transport->pending_shares++;
    return NDP_OK;
}

static ndp_status test(const ndp_mpi_plain *p, ndp_work *w, bool *done) {
    int first, second;
    NDP_TRY(ndp_mpi_check(w, p->api->test(&w->request[0], &first, NULL)));
    NDP_TRY(ndp_mpi_check(w, p->api->test(&w->request[1], &second, NULL)));
    *done = first && second;
    return NDP_OK;
}

/* MPI has moved the data of operation ended + 1: sums it. It is complete then, unless a second half follows. */
static ndp_status finish_next(ndp_mpi_plain *p, ndp_mpi_pending *o) {
    if (o->work.kind == NDP_WORK_ALL_REDUCE)
        NDP_TRY(ndp_mpi_all_reduce_end(p, o));
    else if (o->work.kind == NDP_WORK_REDUCE_SCATTER)
        ndp_mpi_reduce_scatter_end(p, o);
    if (o->gathering)
        return NDP_OK;
    p->ended++;
    p->base->transport->pending_shares--;
    return NDP_OK;
}

static ndp_status make_progress(ndp_progress_fn *f) {
    ndp_mpi_plain *p = (ndp_mpi_plain *)f;
    bool done = true;
    int there, from, tag;
    const char *text = p->messages ? p->api->probe(p->comm, &there, &from, &tag) : NULL;
    if (text)
        return NDP_FAIL(NDP_ECOMM, "%s: MPI failed in messages: %s", p->base->name, text);
    while (p->ended != p->begun && done) {
        ndp_mpi_pending *o = pending_of(p, p->ended + 1);
        ndp_mpi_matcher agree = matcher_of(p);
        if (!o->agreed)
            NDP_TRY(ndp_mpi_match_poll(&agree, &o->match, &o->agreed));
        done = o->agreed;
        if (done) /* not before: MPI may fail in its own words if operations differ */
            NDP_TRY(test(p, &o->work, &done));
        if (done)
            NDP_TRY(finish_next(p, o));
    }
    return NDP_OK;
}

/* ---- messages ---- */

static ndp_status message_begin(ndp_mpi_plain *p, ndp_work *w) {
    const ndp_transport *t = p->base->transport;
    w->request[0] = w->request[1] = 0;
    if (w->kind == NDP_WORK_SEND)
        ndp_journal_set_sequence(&t->journals[t->rank], w, ++p->sent[w->peer]);
    const char *text = w->kind == NDP_WORK_SEND
                           ? p->api->send(p->comm, w->in, w->count, w->peer, w->tag, &w->request[0])
                           : p->api->recv(p->comm, w->out, w->count, w->peer, w->tag, &w->request[0]);
    NDP_TRY(ndp_mpi_check(w, text));
    p->messages++;
    p->base->transport->pending_shares++;
    return NDP_OK;
}

/* MPI refuses a message that is longer than its receive. */
static ndp_status message_test(const ndp_mpi_plain *p, ndp_work *w, bool *done) {
    char what[160];
    int there;
    int64_t bytes = w->count;
    NDP_TRY(ndp_mpi_check(w, p->api->test(&w->request[0], &there, w->kind == NDP_WORK_RECV ? &bytes : NULL)));
    *done = there;
    if (bytes == w->count)
        return NDP_OK;
    return NDP_FAIL(NDP_ECOMM, "%s: rank %d is at %s, rank %d has sent %lld bytes", w->comm->name,
                    w->comm->transport->rank, ndp_record_text(record_of(w), what, sizeof what),
                    ndp_comm_world_rank(w->comm, w->peer), (long long)bytes);
}

/* ---- all operations ---- */

static ndp_status is_done(ndp_mpi_plain *p, ndp_work *w, bool *done) {
    if (ndp_work_is_message(w))
        return message_test(p, w, done);
    *done = (int32_t)(p->ended - w->sequence) >= 0;
    return NDP_OK;
}

/* What this rank waits for others to begin: the collective, or one message more than it has received. Receives of other
 * tags may be pending, so a sender that has begun more may have begun this one or not. For a send nothing is certain: a
 * receive does not say which message it will take (sequence 0). */
static ndp_expected_op expected_by(const ndp_mpi_plain *p, const ndp_work *w) {
    const ndp_transport *t = p->base->transport;
    ndp_expected_op e = {.base = p->base->group.base, .comm = p->base->number, .to = -1};
    if (ndp_work_is_message(w))
        e.to = t->rank;
    else
        e.sequence = record_of(w)->sequence;
    if (w->kind == NDP_WORK_RECV)
        e.sequence = p->received[w->peer] + 1;
    return e;
}

/* One look at the others during a long wait: replies to requests, finds a missing rank, and checks for a cycle. A rank
 * that has left only replies; ranks that wait for it report that themselves. */
static ndp_status watch_peers(ndp_mpi_plain *p, ndp_work *w, ndp_watchdog *watchdog, double begun) {
    ndp_transport *t = w->comm->transport;
    ndp_expected_op e = expected_by(p, w);
    double now = ndp_now();
    ndp_waypoints_poll(t, now);
    NDP_TRY(ndp_state_query_serve(t->state_query, &e));
    if (atomic_load(&t->health->of[t->rank].left))
        return NDP_OK;
    NDP_TRY(ndp_watchdog_find_missing(watchdog, &e, w, now));
    NDP_TRY(ndp_watchdog_find_cycle(watchdog, t, now));
    return ndp_watchdog_check_limit(w, -1, begun, now);
}

/* Never sleeps: MPI only moves data while it is called. */
static ndp_status poll_until_done(ndp_mpi_plain *p, ndp_work *w) {
    ndp_transport *t = w->comm->transport;
    ndp_journal *journal = &t->journals[t->rank];
    double begun = ndp_now();
    ndp_watchdog watchdog = {.next = begun + UNWATCHED_SECONDS};
    for (int64_t polls = 1;; polls++) {
        bool done;
        NDP_TRY(make_progress(&p->progress));
        NDP_TRY(is_done(p, w, &done));
        if (done)
            return NDP_OK;
        NDP_TRY(ndp_health_check(t->health));
        if (polls % 16 == 0)
            NDP_TRY(ndp_progress_fns_run(t));
        if (polls == POLLS_UNRECORDED)
            ndp_journal_wait_begin(journal, w, ndp_work_is_message(w) ? ndp_comm_world_rank(w->comm, w->peer) : -1);
        if (polls >= POLLS_UNRECORDED &&
            polls % POLLS_PER_WATCH == 0) /* after its progress functions: 64 is a multiple of 16 */
            NDP_TRY(watch_peers(p, w, &watchdog, begun));
        sched_yield();
    }
}

static ndp_status complete(ndp_mpi_plain *p, ndp_work *w) {
    const ndp_transport *t = w->comm->transport;
    ndp_status st = poll_until_done(p, w);
    ndp_journal_wait_end(&t->journals[t->rank]);
    return st;
}

ndp_status ndp_mpi_plain_begin(ndp_mpi_plain *p, ndp_work *w) {
    return ndp_work_is_message(w) ? message_begin(p, w) : collective_begin(p, w);
}

ndp_status ndp_mpi_plain_wait(ndp_mpi_plain *p, ndp_work *w) {
    if (!ndp_work_is_message(w)) {
        if (w->sequence != p->waited + 1)
            return NDP_FAIL(NDP_EBUG, "operation #%u of group %s is waited for before #%u", w->sequence, p->base->name,
                            p->waited + 1);
        p->waited++;
        return complete(p, w);
    }
    NDP_TRY(complete(p, w));
    if (w->kind == NDP_WORK_RECV)
        p->received[w->peer]++;
    p->messages--;
    p->base->transport->pending_shares--;
    return NDP_OK;
}

/* ---- the handle ---- */

static void free_tables(ndp_mpi_plain *p) {
    free(p->sent);
    free(p->received);
    free(p->parts);
}

ndp_status ndp_mpi_plain_init(ndp_mpi_plain *p, const ndp_mpi_api *api, ndp_comm *c) {
    ndp_group g = c->group;
    *p = (ndp_mpi_plain){.progress = {.run = make_progress},
                         .api = api,
                         .base = c,
                         .sent = calloc((size_t)g.count, sizeof *p->sent),
                         .received = calloc((size_t)g.count, sizeof *p->received),
                         .parts = calloc((size_t)g.count, sizeof *p->parts),
                         .hashes = calloc((size_t)g.count * NDP_SHM_OUTSTANDING, sizeof *p->hashes)};
    if (!p->sent || !p->received || !p->parts || !p->hashes) {
        free_tables(p);
        free(p->hashes);
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for a communicator of %d ranks", g.count);
    }
    const char *text = api->comm_create(g.base, g.stride, g.count, &p->comm);
    if (!text)
        text = api->comm_create(g.base, g.stride, g.count, &p->second);
    if (!text) {
        for (int i = 0; i < NDP_SHM_OUTSTANDING; i++)
            p->pending[i].match.all = p->hashes + (size_t)i * (size_t)g.count;
        ndp_progress_fn_add(c->transport, &p->progress);
        return NDP_OK;
    }
    if (p->comm)
        api->comm_destroy(p->comm);
    free_tables(p);
    free(p->hashes);
    return NDP_FAIL(NDP_ECOMM, "MPI cannot create a communicator of %d ranks: %s", g.count, text);
}

void ndp_mpi_plain_release(ndp_mpi_plain *p, bool quiet) {
    ndp_transport *t = p->base->transport;
    t->pending_shares -= (int)(p->begun - p->ended) + p->messages;
    ndp_progress_fn_remove(t, &p->progress);
    free_tables(p);
    if (quiet) /* MPI may still write into the scratch; the process is about to end */
        return;
    p->api->comm_destroy(p->comm);
    p->api->comm_destroy(p->second);
    free(p->hashes);
    for (int i = 0; i < NDP_SHM_OUTSTANDING; i++)
        free(p->pending[i].scratch.data);
}
