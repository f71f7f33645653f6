/* Communicators of NCCL: how ranks connect.
 *
 * The first communicator of a group is made from an id, which its rank 0 broadcasts on the host's transport; every
 * other one of the same group is split from it. So each ndp_comm has a communicator of its own, and a queue of its own
 * or one with others that are never under way at the same time: gathers do not wait behind reductions.
 *
 * Engines of one rank do not run at the same time, so the communicators of a later transport beside the same one of the
 * host are those of an earlier one, where it has the same group by the same name: each takes memory of the GPU. Queues
 * are its own.
 *
 * Messages. NCCL matches sends and receives of a pair of ranks by their order, and a queue runs its operations one
 * after the other. So each direction between two ranks has its own communicator and queue. On it there are only sends
 * at one end and only receives at the other, in the same order (ndp_comm_connect compares them): a message waits for
 * the messages before it and for nothing else, as on the host. */
#include "base/clock.h"
#include "comm/nccl/nccl_parts.h"
#include "comm/watch/health.h"
#include "comm/watch/op_wait.h"
#include "comm/watch/state_query.h"
#include "comm/watch/wait.h"
#include "comm/watch/waypoints.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* How long a death takes to be known here, and how long the end of a communicator may take. */
enum { GRACE_SECONDS = 3, END_SECONDS = 10, POLLS_PER_CHECK = 256 };

#define UNWATCHED_SECONDS 0.05 /* how long a begin lasts before the rank enters it in its journal */

/* Numbers of communicators, apart from those of the host's transport. */
enum { FIRST_NUMBER = 1 << 30 };

/* ---- waiting for NCCL ---- */

static ndp_status check_others(nccl_transport *t) {
    ndp_waypoints_poll(&t->base, ndp_now());
    NDP_TRY(ndp_health_check(t->base.health));
    NDP_TRY(ndp_state_query_serve(t->base.state_query, NULL));
    return ndp_progress_fns_run(t->base.host);
}

ndp_status nccl_failed(nccl_transport *t, const char *group, const char *error) {
    char text[768];
    snprintf(text, sizeof text, "%s", error);
    for (double end = ndp_now() + GRACE_SECONDS; ndp_now() < end; usleep(10000))
        NDP_TRY(check_others(t));
    return NDP_FAIL(NDP_ECOMM, "group %s: %s (NCCL_DEBUG=INFO tells more)", group, text);
}

static ndp_status settle_for(nccl_transport *t, void *comm, const char *group, double seconds) {
    double end = ndp_now() + seconds;
    for (unsigned turn = 1;; turn++) {
        bool ready;
        const char *error = t->api->comm_poll(comm, &ready);
        if (error)
            return nccl_failed(t, group, error);
        if (ready)
            return NDP_OK;
        if (turn % POLLS_PER_CHECK) {
            sched_yield();
            continue;
        }
        NDP_TRY(check_others(t));
        if (ndp_now() > end)
            return NDP_FAIL(NDP_ECOMM,
                            "rank %d waited %g s for NCCL to connect group %s: another rank of it does not reply "
                            "(NCCL_DEBUG=INFO tells more; NCCL_SOCKET_IFNAME chooses the network)",
                            t->base.rank, seconds, group);
        usleep(200);
    }
}

ndp_status nccl_settle(nccl_transport *t, void *comm, const char *group) {
    return settle_for(t, comm, group, t->base.timeout);
}

/* Also the other ranks must have begun it. */
static ndp_status watch_begin(nccl_transport *t, ndp_op_wait *o, double now, double begun) {
    ndp_waypoints_poll(&t->base, now);
    NDP_TRY(ndp_health_check(t->base.health));
    NDP_TRY(ndp_state_query_serve(t->base.state_query, &o->expected));
    NDP_TRY(ndp_progress_fns_run(t->base.host));
    NDP_TRY(ndp_op_wait_look(o, now));
    return ndp_op_wait_check_limit(o, begun, now);
}

ndp_status nccl_settle_begin(nccl_comm *c, const nccl_link *link, const ndp_work *w) {
    nccl_transport *t = (nccl_transport *)c->base.transport;
    double begun = ndp_now();
    ndp_op_wait o;
    ndp_status st = NDP_OK;
    bool ready = false, watched = false;
    while (st == NDP_OK && !ready) {
        const char *error = t->api->comm_poll(link->comm, &ready);
        double now = ndp_now();
        if (error) {
            st = nccl_failed(t, c->base.name, error);
        } else if (!ready && now - begun > UNWATCHED_SECONDS) {
            if (!watched)
                ndp_op_wait_begin(&o, w, &ndp_journal_record(&t->base.journals[t->base.rank], w)->at, true);
            watched = true;
            st = watch_begin(t, &o, now, begun);
            usleep(200);
        } else if (!ready) {
            sched_yield();
        }
    }
    if (watched)
        ndp_op_wait_end(&o);
    return st;
}

/* ---- links ---- */

static const ndp_device *device_of(const nccl_comm *c) { return c->base.transport->device; }
static nccl_transport *transport_of(const nccl_comm *c) { return (nccl_transport *)c->base.transport; }

static ndp_status tell(nccl_comm *c, const char *error) {
    return error ? nccl_failed(transport_of(c), c->base.name, error) : NDP_OK;
}

/* `comm` becomes that of the link, ready for operations. Its queue comes with the first of them: a communicator from
 * which others are only split needs none, and a GPU has few that run by themselves (step/queues.c). */
static ndp_status link_up(nccl_comm *c, nccl_link *link, void *comm) {
    nccl_transport *t = transport_of(c);
    link->comm = comm;
    link->users = malloc(sizeof *link->users);
    NDP_CHECK_MEMORY(link->users, "for the communicator of group %s", c->base.name);
    *link->users = 1;
    return nccl_settle(t, comm, c->base.name);
}

static void link_borrow(nccl_link *link, const nccl_link *of) {
    link->comm = of->comm;
    link->users = of->users;
    ++*link->users;
}

/* After a failure nothing waits for peers. */
static void link_down(nccl_comm *c, nccl_link *link) {
    nccl_transport *t = transport_of(c);
    bool failed = t->aborted || atomic_load(&t->base.health->failed) != 0;
    bool last = link->comm && !(link->users && --*link->users > 0);
    if (last && !failed)
        failed = t->api->comm_finalize(link->comm) || settle_for(t, link->comm, c->base.name, END_SECONDS) != NDP_OK;
    if (last && failed)
        nccl_abort_all(t);
    if (link->queue)
        device_of(c)->queue_destroy(link->queue);
    if (last) {
        t->api->comm_release(link->comm);
        free(link->users);
    }
    *link = (nccl_link){0};
}

/* ---- the communicator of collectives ---- */

static ndp_status from_id(nccl_comm *c, void **out) {
    const ndp_nccl_api *api = transport_of(c)->api;
    char id[NDP_NCCL_ID_BYTES] = {0};
    ndp_work w;
    if (c->base.group.rank == 0)
        NDP_TRY(tell(c, api->unique_id(id)));
    NDP_TRY(ndp_broadcast_begin(c->host, id, sizeof id, 0, &w));
    NDP_TRY(ndp_wait(&w));
    return tell(c, api->comm_init(id, c->base.group.count, c->base.group.rank, c->base.name, out));
}

static bool same_group(const ndp_group *a, const ndp_group *b) {
    return a->base == b->base && a->stride == b->stride && a->count == b->count;
}

static nccl_comm *of_same_group(const nccl_comm *c) {
    nccl_comm *o = transport_of(c)->comms;
    while (o && !(o->collectives.comm && same_group(&o->base.group, &c->base.group)))
        o = o->next;
    return o;
}

static bool has_link(const nccl_transport *t, const nccl_link *link) {
    bool has = false;
    for (const nccl_comm *o = t->comms; o; o = o->next)
        has |= o->collectives.comm == link->comm;
    return has;
}

/* A communicator of another transport whose group and name are those of c; NCCL's is not yet one of c's transport. */
static nccl_comm *lender_of(const nccl_comm *c) {
    const nccl_transport *own = transport_of(c);
    for (nccl_transport *t = own->base.host->nccl; t; t = t->next)
        for (nccl_comm *o = t != own && !t->aborted ? t->comms : NULL; o; o = o->next)
            if (o->collectives.comm && same_group(&o->base.group, &c->base.group) &&
                strcmp(o->base.name, c->base.name) == 0 && !has_link(own, &o->collectives))
                return o;
    return NULL;
}

/* The communicator has nothing under way then. */
static ndp_status split(nccl_comm *c, nccl_comm *from, bool member, int rank, void **out) {
    return tell(c, transport_of(c)->api->comm_split(from->collectives.comm, member, rank, c->base.name, out));
}

/* The group's first rank chooses the number by which journals tell its communicators apart. */
static ndp_status number(nccl_comm *c) {
    nccl_transport *t = transport_of(c);
    ndp_work w;
    uint32_t chosen = c->base.group.rank == 0 ? FIRST_NUMBER + t->base.host->numbered++ : 0;
    NDP_TRY(ndp_broadcast_begin(c->host, &chosen, sizeof chosen, 0, &w));
    NDP_TRY(ndp_wait(&w));
    c->base.number = chosen;
    return NDP_OK;
}

static ndp_status connect_group(nccl_comm *c) {
    nccl_comm *first = of_same_group(c), *lender = lender_of(c);
    void *comm;
    ndp_comm_at(c->host, "connecting NCCL", -1, -1);
    NDP_TRY(ndp_barrier(c->host)); /* a rank that is missing is named here */
    NDP_TRY(number(c));
    if (lender) {
        link_borrow(&c->collectives, &lender->collectives);
        c->lender = lender;
        return NDP_OK;
    }
    if (first) {
        if (*nccl_queue_of(first))
            NDP_TRY(ndp_transport_drain(&transport_of(c)->base, *nccl_queue_of(first)));
        NDP_TRY(split(c, first, true, c->base.group.rank, &comm));
    } else {
        NDP_TRY(from_id(c, &comm));
    }
    return link_up(c, &c->collectives, comm);
}

static void drop(nccl_transport *t, const nccl_comm *c) {
    nccl_comm **at = &t->comms;
    while (*at && *at != c)
        at = &(*at)->next;
    if (*at)
        *at = c->next;
}

static nccl_comm *new_comm(ndp_transport *t, ndp_group group, const char *name) {
    nccl_comm *c = calloc(1, sizeof *c);
    ndp_nccl_message *messages = calloc(2 * (size_t)group.count, sizeof *messages);
    if (!c || !messages) {
        free(c);
        free(messages);
        return NULL;
    }
    ndp_comm_init(&c->base, t, group, name);
    c->messages = messages;
    return c;
}

/* Groups of one rank need none: comm.c performs their operations on the caller's queue. */
ndp_status nccl_comm_create(ndp_transport *t, ndp_group group, const char *name, ndp_comm **out) {
    nccl_comm *c = new_comm(t, group, name);
    NDP_CHECK_MEMORY(c, "for the communicator of group %s", name);
    ndp_status st = group.count == 1 ? NDP_OK : ndp_comm_create(t->host, group, name, &c->host);
    if (st == NDP_OK && group.count > 1) {
        c->next = transport_of(c)->comms;
        transport_of(c)->comms = c;
        st = connect_group(c);
    }
    if (st != NDP_OK) {
        nccl_comm_destroy(&c->base);
        return st;
    }
    *out = &c->base;
    return NDP_OK;
}

void nccl_comm_share_queue(ndp_comm *c, ndp_comm *of) { ((nccl_comm *)c)->shares = (nccl_comm *)of; }

void nccl_comm_destroy(ndp_comm *base) {
    nccl_comm *c = (nccl_comm *)base;
    for (int p = 0; p < base->group.count; p++) {
        if (c->to)
            link_down(c, &c->to[p]);
        if (c->from)
            link_down(c, &c->from[p]);
    }
    link_down(c, &c->collectives);
    drop(transport_of(c), c);
    device_of(c)->memory_unmap(base->transport->context, c->scratch, c->scratch_bytes, NDP_MEMORY_DEVICE);
    ndp_comm_destroy(c->host);
    free(c->to);
    free(c->from);
    free(c->paired);
    free(c->messages);
    free(c);
}

/* ---- messages ---- */

/* What each rank of the group sends and receives: orders[rank][0: sends, 1: receives][peer]. */
static ndp_status gather_orders(nccl_comm *c, const uint64_t *sends, const uint64_t *receives, uint64_t *orders) {
    int n = c->base.group.count;
    uint64_t *mine = orders + (size_t)c->base.group.rank * 2 * (size_t)n;
    ndp_work w;
    memcpy(mine, sends, (size_t)n * sizeof *mine);
    memcpy(mine + n, receives, (size_t)n * sizeof *mine);
    NDP_TRY(ndp_all_gather_begin(c->host, mine, orders, 2 * n, NDP_I64, &w));
    return ndp_wait(&w);
}

static ndp_status connect_pair(nccl_comm *c, int from, int to, const uint64_t *orders) {
    int n = c->base.group.count, me = c->base.group.rank;
    uint64_t sent = orders[from * 2 * n + to], received = orders[to * 2 * n + n + from];
    void *comm;
    if (sent != received)
        return NDP_FAIL(NDP_ENOTSUP,
                        "group %s: rank %d receives messages of rank %d in another order than they are sent in, which "
                        "NCCL cannot do: set train.collectives: staged, or another pipeline.schedule",
                        c->base.name, ndp_comm_world_rank(&c->base, to), ndp_comm_world_rank(&c->base, from));
    if (!sent)
        return NDP_OK;
    bool member = me == from || me == to;
    const nccl_comm *lender = c->lender;
    c->paired[from * n + to] = true;
    if (lender && lender->paired && lender->paired[from * n + to]) {
        if (member)
            link_borrow(me == from ? &c->to[to] : &c->from[from], me == from ? &lender->to[to] : &lender->from[from]);
        return NDP_OK;
    }
    NDP_TRY(split(c, c, member, me == to, &comm));
    if (member)
        return link_up(c, me == from ? &c->to[to] : &c->from[from], comm);
    ndp_status st = nccl_settle(transport_of(c), comm, c->base.name);
    transport_of(c)->api->comm_release(comm);
    return st;
}

/* Pairs connect in one order on all ranks, so no circle of them can form. */
ndp_status nccl_comm_connect(ndp_comm *base, const uint64_t *sends, const uint64_t *receives) {
    nccl_comm *c = (nccl_comm *)base;
    size_t n = (size_t)base->group.count;
    uint64_t *orders = calloc(2 * n * n, sizeof *orders);
    c->to = calloc(n, sizeof *c->to);
    c->from = calloc(n, sizeof *c->from);
    c->paired = calloc(n * n, sizeof *c->paired);
    if (!orders || !c->to || !c->from || !c->paired) {
        free(orders);
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for the messages of group %s", base->name);
    }
    ndp_status st = gather_orders(c, sends, receives, orders);
    for (int from = 0; from < (int)n && st == NDP_OK; from++)
        for (int to = 0; to < (int)n && st == NDP_OK; to++)
            st = from == to ? NDP_OK : connect_pair(c, from, to, orders);
    free(orders);
    return st;
}
