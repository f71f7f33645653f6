/* Operations of processes on a device, by NCCL.
 *
 * A begin makes the communicator's queue wait for the caller's and submits NCCL's operation to it; a wait makes the
 * caller's queue wait for the operation's end. NCCL does not compare what ranks ask for: ranks whose operations differ
 * would wait forever or get wrong data, so programs are compared before they run (step/program_agree.c).
 *
 * Sums. NCCL adds in an order of its own, the same in every run with the same number of ranks and the same settings. A
 * sum that is added to what the result holds is first made in scratch memory, and then added by the device, which also
 * rounds bf16 once more. The scratch grows with the first step's largest such operation and is kept. */
#include "comm/nccl/nccl_transport.h"
#include "comm/nccl/nccl_load.h"
#include "comm/nccl/nccl_parts.h"
#include "comm/watch/health.h"
#include "comm/watch/journal.h"

#include <stdio.h>
#include <stdlib.h>

static const ndp_nccl_api *api_of(const ndp_work *w) { return ((nccl_transport *)w->comm->transport)->api; }

/* ---- operations ---- */

/* Growing waits for the queue, which may still use the memory. */
static ndp_status take_scratch(nccl_comm *c, size_t bytes) {
    const ndp_transport *t = c->base.transport;
    if (c->scratch_bytes >= bytes)
        return NDP_OK;
    NDP_TRY(ndp_transport_drain(c->base.transport, c->base.queue));
    t->device->memory_unmap(t->context, c->scratch, c->scratch_bytes, NDP_MEMORY_DEVICE);
    c->scratch = NULL;
    c->scratch_bytes = 0;
    NDP_TRY(t->device->memory_map(t->context, bytes, NDP_MEMORY_DEVICE, &c->scratch));
    c->scratch_bytes = bytes;
    return NDP_OK;
}

/* After what the queue holds: out += scratch. */
static ndp_status add_scratch(const nccl_comm *c, const ndp_work *w) {
    const ndp_rank_sum sum = {.type = w->type,
                              .accumulate = true,
                              .ranks = 1,
                              .outs = 1,
                              .in = &(void *){c->scratch},
                              .out = &(void *){w->out},
                              .count = w->count};
    return w->comm->transport->device->sum(c->base.queue, &sum);
}

/* The messages of an operation in which every rank sends to others: c->messages, *n of them. */
static void list_messages(nccl_comm *c, const ndp_work *w, int *n) {
    int size = c->base.group.count, rank = c->base.group.rank, k = 0;
    int64_t in_at = 0, out_at = 0;
    for (int p = 0; p < size; p++) {
        bool all = w->kind == NDP_WORK_ALL_TO_ALL;
        int64_t in = (int64_t)ndp_work_part(w, rank, p), out = (int64_t)ndp_work_part(w, p, rank);
        if (in > 0 && (all || p == (rank + 1) % size))
            c->messages[k++] = (ndp_nccl_message){.send = (const char *)w->in + in_at, .bytes = in, .peer = p};
        if (out > 0 && (all || p == (rank + size - 1) % size))
            c->messages[k++] = (ndp_nccl_message){.recv = (char *)w->out + out_at, .bytes = out, .peer = p};
        in_at += all ? in : 0;
        out_at += all ? out : 0;
    }
    *n = k;
}

static const char *submit_exchange(nccl_comm *c, const ndp_work *w, void *stream) {
    int n;
    list_messages(c, w, &n);
    return n ? api_of(w)->exchange(c->collectives.comm, stream, c->messages, n) : NULL;
}

static const char *submit_message(const nccl_link *link, const ndp_work *w, void *stream) {
    bool send = w->kind == NDP_WORK_SEND;
    const ndp_nccl_message m = {
        .send = send ? w->in : NULL, .recv = send ? NULL : w->out, .bytes = w->count, .peer = send};
    return w->count ? api_of(w)->exchange(link->comm, stream, &m, 1) : NULL;
}

static const char *submit(nccl_comm *c, const nccl_link *link, const ndp_work *w, void *stream) {
    const ndp_nccl_api *api = api_of(w);
    bool scratch = w->kind == NDP_WORK_REDUCE_SCATTER && w->accumulate;
    if (w->count == 0)
        return NULL;
    switch ((ndp_work_kind)w->kind) {
    case NDP_WORK_ALL_REDUCE:
        return api->all_reduce(link->comm, stream, w->in, w->out, w->count, w->type, w->reduce == NDP_MAX);
    case NDP_WORK_ALL_GATHER:
        return api->all_gather(link->comm, stream, w->in, w->out, w->count, w->type);
    case NDP_WORK_REDUCE_SCATTER:
        return api->reduce_scatter(link->comm, stream, w->in, scratch ? c->scratch : w->out, w->count, w->type);
    case NDP_WORK_BROADCAST:
        return api->broadcast(link->comm, stream, w->out, w->count, w->peer);
    case NDP_WORK_SEND:
    case NDP_WORK_RECV:
        return submit_message(link, w, stream);
    default:
        return submit_exchange(c, w, stream);
    }
}

/* NULL: messages to or from that rank were not expected. */
static nccl_link *link_of(nccl_comm *c, const ndp_work *w) {
    nccl_link *links = w->kind == NDP_WORK_SEND ? c->to : c->from;
    if (!ndp_work_is_message(w))
        return &c->collectives;
    return links && links[w->peer].comm ? &links[w->peer] : NULL;
}

static ndp_status nccl_begin(ndp_work *w) {
    nccl_comm *c = (nccl_comm *)w->comm;
    const ndp_device *d = c->base.transport->device;
    nccl_transport *t = (nccl_transport *)c->base.transport;
    nccl_link *link = link_of(c, w);
    bool scratch = w->kind == NDP_WORK_REDUCE_SCATTER && w->accumulate && w->count > 0;
    ndp_mark ready;
    if (w->kind == NDP_WORK_BARRIER)
        return ndp_barrier(c->host);
    NDP_CHECK(link, "a message of group %s to or from rank %d, without ndp_comm_connect", c->base.name, w->peer);
    if (ndp_work_is_message(w))
        ndp_journal_set_sequence(&t->base.journals[t->base.rank], w, ++link->messages);
    ndp_queue **own = ndp_work_is_message(w) ? &link->queue : nccl_queue_of(c);
    if (!*own)
        NDP_TRY(ndp_urgent_queue_create(d, t->base.context, own));
    ndp_queue *queue = *own;
    c->base.queue = *nccl_queue_of(c);
    if (scratch)
        NDP_TRY(take_scratch(c, ndp_work_bytes(w)));
    NDP_TRY(d->mark(w->queue, &ready));
    NDP_TRY(d->after(queue, &ready));
    const char *error = submit(c, link, w, d->stream(queue));
    if (error) { /* where the device has failed, that is why */
        NDP_TRY(d->mark(queue, &ready));
        return nccl_failed(t, c->base.name, error);
    }
    NDP_TRY(nccl_settle_begin(c, link, w));
    if (scratch)
        NDP_TRY(add_scratch(c, w));
    w->in_place = true;
    return d->mark(queue, &w->done);
}

static ndp_status nccl_wait(ndp_work *w) {
    return w->kind == NDP_WORK_BARRIER ? NDP_OK : w->comm->transport->device->after(w->queue, &w->done);
}

/* ---- the transport ---- */

/* Calls `body` for each of NCCL's communicators, until one returns an error. */
static const char *each_link(nccl_transport *t, const char *(*body)(nccl_transport *t, void *comm, void *user),
                             void *user, const nccl_comm **at) {
    const char *error = NULL;
    for (nccl_comm *c = t->comms; c && !error; c = c->next) {
        *at = c;
        error = c->collectives.comm ? body(t, c->collectives.comm, user) : NULL;
        for (int p = 0; p < c->base.group.count && !error && c->to && c->from; p++) {
            error = c->to[p].comm ? body(t, c->to[p].comm, user) : NULL;
            if (!error && c->from[p].comm)
                error = body(t, c->from[p].comm, user);
        }
    }
    return error;
}

static const char *poll_link(nccl_transport *t, void *comm, void *ready) { return t->api->comm_poll(comm, ready); }

static ndp_status nccl_check(ndp_transport *base) {
    nccl_transport *t = (nccl_transport *)base;
    const nccl_comm *at = NULL;
    bool ready;
    const char *error = t->aborted ? NULL : each_link(t, poll_link, &ready, &at);
    return error ? nccl_failed(t, at->base.name, error) : NDP_OK;
}

/* `of` NULL: counts. */
typedef struct nccl_list {
    void **of;
    int n;
} nccl_list;

static const char *add_link(nccl_transport *t, void *comm, void *user) {
    nccl_list *l = user;
    for (int i = 0; l->of && i < l->n; i++) /* of another transport as well */
        if (l->of[i] == comm)
            return NULL;
    if (l->of)
        l->of[l->n] = comm;
    l->n += !t->aborted;
    return NULL;
}

static void list_all(const ndp_transport *host, nccl_list *l) {
    const nccl_comm *at;
    for (nccl_transport *t = host->nccl; t; t = t->next)
        each_link(t, add_link, l, &at);
}

/* In one call: an abort may wait for the device, on which an operation of another transport hangs. */
void nccl_abort_all(nccl_transport *t) {
    nccl_list l = {0};
    list_all(t->base.host, &l);
    l.of = calloc((size_t)l.n + 1, sizeof *l.of);
    l.n = 0;
    if (l.of)
        list_all(t->base.host, &l);
    for (nccl_transport *o = t->base.host->nccl; o; o = o->next)
        o->aborted = true;
    if (l.n > 0)
        t->api->comm_abort(l.of, l.n);
    free(l.of);
}

static void nccl_abort(ndp_transport *base, const char *message) {
    ndp_health_fail(base->health, base->rank, message);
    nccl_abort_all((nccl_transport *)base);
}

static void nccl_destroy(ndp_transport *base) {
    nccl_transport *t = (nccl_transport *)base, **at = &base->host->nccl;
    while (*at != t)
        at = &(*at)->next;
    *at = t->next;
    free(t);
}

static const ndp_transport_ops nccl_ops = {
    .name = "nccl",
    .comm_create = nccl_comm_create,
    .comm_connect = nccl_comm_connect,
    .comm_share_queue = nccl_comm_share_queue,
    .comm_destroy = nccl_comm_destroy,
    .begin = nccl_begin,
    .wait = nccl_wait,
    .check = nccl_check,
    .abort = nccl_abort,
    .destroy = nccl_destroy,
};

ndp_status ndp_nccl_transport(ndp_transport *host, const ndp_device *d, ndp_device_context *context,
                              ndp_transport **out) {
    const ndp_nccl_api *api;
    if (!d->stream || !d->sum)
        return NDP_FAIL(NDP_ENOTSUP, "NCCL cannot move the tensors of device %s: set train.collectives: staged",
                        d->name);
    NDP_TRY(ndp_nccl_load(&api));
    nccl_transport *t = calloc(1, sizeof *t);
    NDP_CHECK_MEMORY(t, "for the nccl transport");
    t->base = ndp_transport_beside(host, &nccl_ops, d, context);
    t->api = api;
    t->next = host->nccl;
    host->nccl = t;
    *out = &t->base;
    return NDP_OK;
}
