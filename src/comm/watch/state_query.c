/* State queries: one request or reply is one small MPI message, sent and received without waiting.
 *
 *   waiting rank                        rank of another node
 *   ndp_state_query_send  --request-->  ndp_state_query_serve, in its own wait
 *   ndp_state_query_serve <--reply----  send_reply: reads the journal of itself or of a rank of its node
 *
 * Called by the poll loop of mpi_plain.c, by gate waits (serve alone) and by the watchdog. Invariants: a request
 * carries the number of the wait in which it was sent, and a reply to an earlier wait is dropped; a rank has at most
 * one unanswered request from this one (reply_pending); all messages are checked before use. */
#include "comm/watch/state_query.h"
#include "base/clock.h"
#include "comm/watch/health.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REQUEST, REPLY, FAILURE, TAGS };

static const int64_t bytes_of[TAGS] = {sizeof(ndp_state_request), sizeof(ndp_state_reply), sizeof(ndp_failure_notice)};

#define REQUEST_SECONDS 0.2 /* between two requests about one rank */

static ndp_status check_mpi(const char *text) {
    return text ? NDP_FAIL(NDP_ECOMM, "MPI failed while ranks queried each other's state: %s", text) : NDP_OK;
}

bool ndp_state_query_is_local(const ndp_state_query *q, int rank) {
    return !q || q->node_of[rank] == q->node_of[q->t->rank];
}

/* `left` is read first: a rank that leaves has begun everything before. */
ndp_peer_progress ndp_state_query_local_progress(const ndp_transport *t, int rank, const ndp_expected_op *e) {
    bool left = atomic_load(&t->health->of[rank].left) != 0;
    ndp_peer_progress p = ndp_journal_progress(&t->journals[rank], e);
    p.left = left;
    return p;
}

/* ---- sending ---- */

/* *out = NULL if all are in flight: the caller then sends later, or not at all. */
static ndp_status free_slot(ndp_state_query *q, ndp_state_query_slot **out) {
    *out = NULL;
    for (int k = 0; k < NDP_STATE_QUERY_SLOTS && !*out; k++) {
        int done;
        NDP_TRY(check_mpi(q->api->test(&q->out[k].request, &done, NULL)));
        if (done)
            *out = &q->out[k];
    }
    return NDP_OK;
}

/* Times into ages, and ages into times. */
static void flip_times(ndp_rank_state *s, double now) {
    s->last_poll = now - s->last_poll;
    s->place.since = now - s->place.since;
    s->place.seen = now - s->place.seen;
    s->record.begun = now - s->record.begun;
    if (s->record.ended > 0)
        s->record.ended = now - s->record.ended;
}

static ndp_status send_reply(ndp_state_query *q, int to, const ndp_state_request *r, ndp_state_query_slot *slot) {
    const ndp_transport *t = q->t;
    ndp_state_reply *a = &slot->data.reply;
    *a = (ndp_state_reply){.wait = r->wait, .about = r->about, .state.record.kind = -1};
    if (r->about >= 0 && r->about < t->world && ndp_state_query_is_local(q, r->about)) {
        ndp_journal *j = &t->journals[r->about];
        double now = ndp_now();
        a->progress = ndp_state_query_local_progress(t, r->about, &r->expected);
        a->state = ndp_journal_read(j);
        flip_times(&a->state, now);
    }
    return check_mpi(q->api->send(q->comm, a, sizeof *a, to, REPLY, &slot->request));
}

/* ---- receiving ---- */

static ndp_status fail_message(int from, const char *what) {
    return NDP_FAIL(
        NDP_ECOMM,
        "rank %d sent a damaged %s; do all ranks run the same build? Compare `ndparallel --version` on each host", from,
        what);
}

static bool reply_is_sound(const ndp_state_reply *a, int world) {
    int progress;
    unsigned char left;
    memcpy(&progress, &a->progress.progress, sizeof progress);
    memcpy(&left, &a->progress.left, sizeof left);
    return progress >= NDP_PROGRESS_UNKNOWN && progress <= NDP_PROGRESS_NOT_BEGUN && left <= 1 &&
           ndp_rank_state_is_sound(&a->state, world);
}

/* A reply to a request of an earlier wait is dropped. */
static ndp_status take_reply(ndp_state_query *q, int from, const ndp_state_reply *a) {
    const ndp_transport *t = q->t;
    if (!reply_is_sound(a, t->world))
        return fail_message(from, "reply");
    q->remote[from].reply_pending = false;
    if (a->about < 0 || a->about >= t->world || ndp_state_query_is_local(q, a->about))
        return NDP_OK;
    ndp_remote_state *remote = &q->remote[a->about];
    if (!q->wait || a->wait != q->wait || remote->wait != q->wait)
        return NDP_OK;
    double now = ndp_now();
    ndp_rank_state s = a->state;
    flip_times(&s, now);
    ndp_journal_put(&t->journals[a->about], &s);
    remote->last_reply = now;
    remote->progress = a->progress;
    if (from == a->about) {
        remote->unanswered_since = 0;
        remote->requests = 0;
    }
    return NDP_OK;
}

static ndp_status take_failure(ndp_state_query *q, int from, ndp_failure_notice *f) {
    if (f->rank < 0 || f->rank >= q->t->world)
        return fail_message(from, "failure");
    f->message[sizeof f->message - 1] = '\0';
    ndp_health_fail(q->t->health, f->rank, f->message);
    return NDP_OK;
}

/* Takes one message, if there is one; *more = false if there is none, or no free slot to reply from. */
static ndp_status serve_one(ndp_state_query *q, bool *more) {
    ndp_state_query_slot *slot;
    int done, from;
    *more = false;
    NDP_TRY(free_slot(q, &slot));
    if (!slot)
        return NDP_OK;
    if (q->in_from < 0) {
        NDP_TRY(check_mpi(q->api->probe(q->comm, &done, &q->in_from, &q->in_tag)));
        if (!done)
            return NDP_OK;
        from = q->in_from;
        if (from < 0 || from >= q->t->world || q->in_tag < 0 || q->in_tag >= TAGS) {
            q->in_from = -1;
            return fail_message(from, "message");
        }
        NDP_TRY(
            check_mpi(q->api->recv(q->comm, &q->in.data, bytes_of[q->in_tag], q->in_from, q->in_tag, &q->in.request)));
    }
    NDP_TRY(check_mpi(q->api->test(&q->in.request, &done, NULL)));
    if (!done)
        return NDP_OK;
    from = q->in_from;
    q->in_from = -1;
    *more = true;
    if (q->in_tag == REQUEST)
        return send_reply(q, from, &q->in.data.request, slot);
    return q->in_tag == REPLY ? take_reply(q, from, &q->in.data.reply) : take_failure(q, from, &q->in.data.failure);
}

void ndp_state_query_progress(ndp_state_query *q) {
    int there, from, tag;
    if (q && q->api->probe(q->comm, &there, &from, &tag))
        return; /* the run is over: nothing depends on it */
}

/* Does not wait until the messages arrive. */
void ndp_state_query_send_failure(ndp_state_query *q, const char *message) {
    if (!q)
        return;
    ndp_failure_notice *f = &q->failure;
    f->rank = q->t->rank;
    snprintf(f->message, sizeof f->message, "%s", message);
    for (int r = 0; r < q->t->world; r++) {
        uint64_t request;
        if (!ndp_state_query_is_local(q, r) && q->api->send(q->comm, f, sizeof *f, r, FAILURE, &request))
            return;
    }
}

ndp_status ndp_state_query_serve(ndp_state_query *q, const ndp_expected_op *e) {
    if (!q)
        return NDP_OK;
    ndp_rank_state me = ndp_journal_read(&q->t->journals[q->t->rank]);
    q->wait = me.waiting ? me.wait : 0;
    q->expected = e ? *e : (ndp_expected_op){0};
    for (bool more = true; more;)
        NDP_TRY(serve_one(q, &more));
    return NDP_OK;
}

/* ---- requests ---- */

/* Which rank to ask about `rank`: itself, or, while it is silent, the ranks of its node in turn. -1: that one has a
 * request pending. */
static int choose_respondent(const ndp_state_query *q, int rank) {
    int neighbours = 0, turn = q->remote[rank].requests, chosen = -1;
    for (int r = 0; r < q->t->world; r++)
        neighbours += q->node_of[r] == q->node_of[rank] && r != rank;
    turn %= neighbours + 1;
    for (int r = 0; r < q->t->world && turn > 0; r++)
        if (q->node_of[r] == q->node_of[rank] && r != rank && --turn == 0)
            chosen = r;
    chosen = chosen < 0 ? rank : chosen;
    return q->remote[chosen].reply_pending ? -1 : chosen;
}

static ndp_status send_request(ndp_state_query *q, int rank, ndp_remote_state *remote, double now) {
    ndp_state_query_slot *slot;
    int to = choose_respondent(q, rank);
    remote->last_request = now;
    remote->requests++;
    if (remote->unanswered_since <= 0)
        remote->unanswered_since = now;
    NDP_TRY(free_slot(q, &slot));
    if (!slot || to < 0)
        return NDP_OK;
    slot->data.request = (ndp_state_request){.wait = q->wait, .about = rank, .expected = q->expected};
    q->remote[to].reply_pending = true;
    return check_mpi(
        q->api->send(q->comm, &slot->data.request, sizeof slot->data.request, to, REQUEST, &slot->request));
}

ndp_status ndp_state_query_send(ndp_state_query *q, int rank) {
    ndp_remote_state *remote = &q->remote[rank];
    double now = ndp_now();
    if (!q->wait)
        return NDP_OK;
    if (remote->wait != q->wait)
        *remote = (ndp_remote_state){.wait = q->wait, .reply_pending = remote->reply_pending};
    return now - remote->last_request >= REQUEST_SECONDS ? send_request(q, rank, remote, now) : NDP_OK;
}

const ndp_remote_state *ndp_state_query_remote(const ndp_state_query *q, int rank) {
    const ndp_remote_state *remote = &q->remote[rank];
    return q->wait && remote->wait == q->wait && remote->last_reply > 0 ? remote : NULL;
}

double ndp_state_query_silence(const ndp_state_query *q, int rank) {
    if (ndp_state_query_is_local(q, rank) || q->remote[rank].wait != q->wait || q->remote[rank].unanswered_since <= 0)
        return 0;
    return ndp_now() - q->remote[rank].unanswered_since;
}

/* ---- the handle ---- */

ndp_status ndp_state_query_create(const ndp_mpi_api *api, ndp_transport *t, const int *node_of, ndp_state_query **out) {
    ndp_state_query *q = calloc(1, sizeof *q);
    ndp_remote_state *remote = calloc((size_t)t->world, sizeof *remote);
    const char *text = q && remote ? api->comm_create(0, 1, t->world, &q->comm) : NULL;
    if (!q || !remote || text) {
        free(q);
        free(remote);
        return text ? NDP_FAIL(NDP_ECOMM, "MPI cannot create a communicator of %d ranks: %s", t->world, text)
                    : NDP_FAIL(NDP_ENOMEM, "not enough memory for a world of %d ranks", t->world);
    }
    q->api = api;
    q->t = t;
    q->node_of = node_of;
    q->remote = remote;
    q->in_from = -1;
    *out = q;
    return NDP_OK;
}

void ndp_state_query_destroy(ndp_state_query *q, bool quiet) {
    if (!q)
        return;
    free(q->remote);
    if (quiet) /* MPI may still read and write here; the process is about to end */
        return;
    q->api->comm_destroy(q->comm);
    free(q);
}
