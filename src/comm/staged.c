/* Staged collectives: copies around the operations of another transport.
 *
 * Order: a begin drains the caller's queue before peers may read the copy. This also ends the copies of all earlier
 * waits, so no copy of the queue still reads a place that is used again. */
#include "comm/staged.h"
#include "comm/impl.h"

#include <stdlib.h>

enum { MOST_WORKS = NDP_MOST_COLLECTIVES + NDP_MOST_SENDS + NDP_MOST_RECEIVES };

typedef struct staged_comm {
    ndp_comm base;
    ndp_comm *inner;
    ndp_work works[MOST_WORKS]; /* of operations under way; request[0] of the caller's is the index */
} staged_comm;

static size_t aligned(size_t n) { return (n + 63) & ~(size_t)63; }

ndp_staged_place ndp_staged_place_of(ndp_work_kind kind, size_t in, size_t out, int rank) {
    bool apart = kind == NDP_WORK_REDUCE_SCATTER || kind == NDP_WORK_ALL_TO_ALL || kind == NDP_WORK_SHIFT ||
                 kind == NDP_WORK_SEND;
    ndp_staged_place p = {.handed = kind == NDP_WORK_RECV ? 0 : in, .out = kind == NDP_WORK_SEND ? 0 : out};
    p.in = apart ? aligned(p.out) : kind == NDP_WORK_ALL_GATHER ? in * (size_t)rank : 0;
    p.bytes = aligned(p.out) + (apart ? p.handed : 0);
    return p;
}

static ndp_staged_place place_of(const ndp_work *w) {
    int n = w->comm->group.count, rank = w->comm->group.rank;
    size_t part = ndp_work_bytes(w), all = part * (size_t)n;
    if (w->kind == NDP_WORK_ALL_TO_ALL)
        return ndp_staged_place_of(NDP_WORK_ALL_TO_ALL, ndp_work_handed(w, rank, n), ndp_work_got(w, n, rank), rank);
    return ndp_staged_place_of((ndp_work_kind)w->kind, w->kind == NDP_WORK_REDUCE_SCATTER ? all : part,
                               w->kind == NDP_WORK_ALL_GATHER ? all : part, rank);
}

static ndp_status copy(const ndp_work *w, void *to, const void *from, size_t bytes) {
    return w->comm->transport->device->copy(w->queue, to, bytes, from, bytes, bytes, 1);
}

static ndp_status staged_begin(ndp_work *w) {
    staged_comm *c = (staged_comm *)w->comm;
    ndp_staged_place p = place_of(w);
    char *out = w->stage, *in = out + p.in;
    int i = 0;
    NDP_CHECK(w->stage, "a staged operation on group %s without host memory", c->base.name);
    NDP_TRY(copy(w, in, w->in, p.handed));
    if (w->kind == NDP_WORK_REDUCE_SCATTER && w->accumulate)
        NDP_TRY(copy(w, out, w->out, p.out));
    NDP_TRY(ndp_transport_drain(c->base.transport, w->queue));
    while (c->works[i].comm) /* comm.c limits how many are under way */
        i++;
    w->request[0] = (uint64_t)i;
    const ndp_comm_call call = {.kind = (ndp_work_kind)w->kind,
                                .in = in,
                                .out = out,
                                .count = w->count,
                                .type = (ndp_dtype)w->type,
                                .reduce = (ndp_reduce)w->reduce,
                                .peer = w->peer,
                                .tag = w->tag,
                                .accumulate = w->accumulate,
                                .rows = w->rows,
                                .back = w->back};
    ndp_comm_at(c->inner, c->base.what, c->base.instr, c->base.call);
    return ndp_comm_begin(c->inner, &call, NULL, &c->works[i]);
}

static ndp_status staged_wait(ndp_work *w) {
    staged_comm *c = (staged_comm *)w->comm;
    ndp_work *inner = &c->works[w->request[0]];
    ndp_comm_at(c->inner, c->base.what, c->base.instr, c->base.call);
    NDP_TRY(ndp_comm_wait(inner, NULL));
    w->in_place = false;
    return copy(w, w->out, w->stage, place_of(w).out);
}

static ndp_status staged_comm_create(ndp_transport *t, ndp_group group, const char *name, ndp_comm **out) {
    staged_comm *c = calloc(1, sizeof *c);
    NDP_CHECK_MEMORY(c, "for the communicator of group %s", name);
    ndp_comm_init(&c->base, t, group, name);
    ndp_status st = ndp_comm_create(t->host, group, name, &c->inner);
    if (st != NDP_OK) {
        free(c);
        return st;
    }
    *out = &c->base;
    return NDP_OK;
}

static void staged_comm_destroy(ndp_comm *c) {
    ndp_comm_destroy(((staged_comm *)c)->inner);
    free(c);
}

static void staged_destroy(ndp_transport *t) { free(t); }

static const ndp_transport_ops staged_ops = {
    .name = "staged",
    .comm_create = staged_comm_create,
    .comm_destroy = staged_comm_destroy,
    .begin = staged_begin,
    .wait = staged_wait,
    .destroy = staged_destroy,
};

/* Only the other transport keeps a journal. */
ndp_status ndp_staged_transport(ndp_transport *host, const ndp_device *d, ndp_device_context *context,
                                ndp_transport **out) {
    ndp_transport *t = calloc(1, sizeof *t);
    NDP_CHECK_MEMORY(t, "for staged collectives");
    *t = ndp_transport_beside(host, &staged_ops, d, context);
    t->journals = NULL;
    *out = t;
    return NDP_OK;
}
