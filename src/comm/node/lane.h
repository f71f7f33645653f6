/* How a rank does its share of an operation between ranks that access each other's memory: at once by the host, or on
 * the queue of its communicator on a device. shm.c and p2p.c have the protocol; it is the same for both.
 *
 * On a device a rank's share is submitted, not done, when its gate is set. What orders the work itself are marks: a
 * begin marks the caller's queue (`ready`: the buffers are as the operation needs them), a share runs after the ready
 * marks of the ranks whose memory it touches, and ends with a mark of its own (`finished`), after which the queues of
 * those ranks go on. Marks are published in slots before the gate that announces them.
 *
 * Every mark is waited for by work that is submitted after it, so the order of submissions is one in which all work can
 * run: no kernel waits on the GPU for one that is not submitted, and any number of ranks may share a GPU. A queue
 * reuses its marks in turn; one that is set again before a peer has submitted its wait only makes that peer wait for
 * later work, which was submitted before the wait as well. A rank may end before a peer has submitted its last wait, so
 * marks that peers see are of queues that live as long as the world.
 *
 * After a failure, shares that were submitted may still run when the host has left the operation (watch/health.h). So
 * no rank gives memory back before all ranks submit nothing any more and their queues have run (ndp_transport_quits).
 */
#ifndef NDP_COMM_NODE_LANE_H
#define NDP_COMM_NODE_LANE_H

#include "comm/impl.h"
#include "comm/rank_sum.h"

/* The queue on which a communicator's shares run; NULL: the host does them at once. */
static inline ndp_queue *ndp_lane_of(const ndp_comm *c) { return c->queue; }

static inline ndp_status ndp_lane_copy(const ndp_comm *c, void *to, const void *from, size_t bytes) {
    if (!c->queue) {
        ndp_copy_large(to, from, bytes);
        return NDP_OK;
    }
    return to == from ? NDP_OK : c->transport->device->copy(c->queue, to, bytes, from, bytes, bytes, 1);
}

static inline ndp_status ndp_lane_sum(const ndp_comm *c, const ndp_work *w, void *const *in, void *const *out, int outs,
                                      int64_t count) {
    if (!c->queue) {
        ndp_reduce_ranks((ndp_dtype)w->type, (ndp_reduce)w->reduce, in, c->group.count, out, outs, count,
                         w->accumulate);
        return NDP_OK;
    }
    const ndp_rank_sum sum = {.type = w->type,
                              .max = w->reduce == NDP_MAX,
                              .accumulate = w->accumulate,
                              .ranks = c->group.count,
                              .outs = outs,
                              .in = in,
                              .out = out,
                              .count = count};
    return c->transport->device->sum(c->queue, &sum);
}

/* A mark of `q`; nothing on the host. */
static inline ndp_status ndp_lane_mark(const ndp_comm *c, ndp_queue *q, ndp_mark *out) {
    return c->queue ? c->transport->device->mark(q, out) : NDP_OK;
}

/* What was submitted to the caller's queue `q` so far, as a mark that outlives it. */
static inline ndp_status ndp_lane_ready(const ndp_comm *c, ndp_queue *q, ndp_mark *out) {
    const ndp_device *d = c->transport->device;
    ndp_mark now;
    if (!c->queue)
        return NDP_OK;
    NDP_TRY(d->mark(q, &now));
    NDP_TRY(d->after(c->begins, &now));
    return d->mark(c->begins, out);
}

/* `q` goes on after the mark; nothing on the host. */
static inline ndp_status ndp_lane_after(const ndp_comm *c, ndp_queue *q, const ndp_mark *mark) {
    return c->queue ? c->transport->device->after(q, mark) : NDP_OK;
}

#endif
