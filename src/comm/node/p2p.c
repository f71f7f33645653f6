/* Point-to-point on shared memory.
 *
 *   sender                                        receiver
 *   send_begin: a free slot of the channel        receive_begin: a free entry of its own list
 *     buffer, tag, order ---------------------->  try_receive: the oldest slot with the tag: copies the buffer
 *     gate `sent` = order                           (in receive_wait, or as a progress function in any other wait)
 *   send_wait: gate `taken` reached  <-----------   gate `taken` = order: the slot is free, the buffer the sender's
 *
 * Invariants: only the sender writes a slot that is free, only the receiver one that is not; receives of one tag take
 * messages in the order in which both were begun (oldest_like). A send needs no share of its sender's, so only receives
 * count as pending. */
#include "comm/node/p2p.h"
#include "comm/node/lane.h"
#include "comm/watch/health.h"

static ndp_p2p_channel *channel_of(const ndp_p2p *p, int from, int to) {
    const ndp_node_members *m = &p->members;
    int64_t row = m->place ? m->place[from] : from, column = m->place ? m->place[to] : to;
    return &p->channels[row * m->count + column];
}

static ndp_p2p_channel *channel_from(const ndp_p2p *p, int from) { return channel_of(p, from, p->comm->group.rank); }
static ndp_p2p_channel *channel_to(const ndp_p2p *p, int to) { return channel_of(p, p->comm->group.rank, to); }

static const ndp_record *record_of(const ndp_work *w) {
    const ndp_transport *t = w->comm->transport;
    return ndp_journal_record(&t->journals[t->rank], w);
}

static bool is_full(ndp_p2p_slot *s, uint32_t *order) {
    *order = atomic_load_explicit(&s->order, memory_order_acquire);
    return *order != atomic_load_explicit(&s->taken.value, memory_order_acquire);
}

/* ---- sends: request[0] is the slot, request[1] the copy that the receiver reads, 0 if there is none ---- */

static ndp_status expose(const ndp_p2p *p, ndp_work *w, ndp_ref *out) {
    const ndp_space *s = p->space;
    void *copy = NULL;
    *out = s->locate(s->context, w->in, (size_t)w->count);
    if (out->segment < 0) {
        NDP_TRY(s->stage(s->context, (size_t)w->count, out, &copy));
        ndp_copy_large(copy, w->in, (size_t)w->count);
    }
    w->request[1] = (uint64_t)(uintptr_t)copy;
    return NDP_OK;
}

static ndp_status send_begin(ndp_p2p *p, ndp_work *w) {
    ndp_p2p_channel *channel = channel_to(p, w->peer);
    uint32_t order;
    int i = 0;
    while (is_full(&channel->slot[i], &order)) /* one is free: there are as many as outstanding sends */
        i++;
    ndp_p2p_slot *m = &channel->slot[i];
    order = atomic_load_explicit(&channel->sent.value, memory_order_relaxed) + 1;
    NDP_TRY(expose(p, w, &m->buffer));
    NDP_TRY(ndp_lane_ready(p->comm, w->queue, &m->ready));
    m->tag = w->tag;
    m->operation = *record_of(w);
    w->sequence = order;
    w->request[0] = (uint64_t)i;
    atomic_store_explicit(&m->order, order, memory_order_release);
    ndp_gate_set(&channel->sent, order);
    return NDP_OK;
}

static ndp_status send_wait(ndp_p2p *p, ndp_work *w) {
    void *copy = (void *)(uintptr_t)w->request[1];
    w->in_place = !copy;
    NDP_TRY(ndp_gate_wait(&channel_to(p, w->peer)->slot[w->request[0]].taken, w->sequence, w, w->peer, 0));
    NDP_TRY(ndp_lane_after(p->comm, w->queue, &channel_to(p, w->peer)->slot[w->request[0]].copied));
    if (copy)
        p->space->unstage(p->space->context, copy);
    return NDP_OK;
}

/* ---- receives ---- */

static ndp_status receive_begin(ndp_p2p *p, ndp_work *w) {
    int i = 0;
    while (p->receives[i].work.comm)
        i++;
    w->request[0] = (uint64_t)i;
    NDP_TRY(ndp_lane_mark(p->comm, w->queue, &w->done)); /* the buffer is free */
    p->receives[i].work = *w;
    p->receives[i].order = p->receives_begun++;
    p->receives[i].done = false;
    p->comm->transport->pending_shares++;
    return NDP_OK;
}

/* The oldest message with this tag; NULL if none has arrived. The search skips messages that are sent while it runs:
 * the sender may fill a slot that the search has passed and then put a later message into one that it has not reached.
 */
static ndp_p2p_slot *find(ndp_p2p_channel *channel, int tag) {
    ndp_p2p_slot *best = NULL;
    uint32_t best_order = 0, sent = atomic_load_explicit(&channel->sent.value, memory_order_acquire);
    for (int i = 0; i < NDP_P2P_SLOTS; i++) {
        ndp_p2p_slot *m = &channel->slot[i];
        uint32_t order;
        if (is_full(m, &order) && (int32_t)(order - sent) <= 0 && m->tag == tag &&
            (!best || (int32_t)(order - best_order) < 0)) {
            best = m;
            best_order = order;
        }
    }
    return best;
}

/* On a device: after the message is ready at its sender and the buffer is free here. */
static ndp_status copy_message(const ndp_p2p *p, const ndp_work *w, const void *from, ndp_p2p_slot *m) {
    NDP_TRY(ndp_lane_after(p->comm, p->comm->queue, &m->ready));
    NDP_TRY(ndp_lane_after(p->comm, p->comm->queue, &w->done));
    NDP_TRY(ndp_lane_copy(p->comm, w->out, from, (size_t)w->count));
    return ndp_lane_mark(p->comm, p->comm->queue, &m->copied);
}

static ndp_status copy_out(ndp_p2p *p, int i, ndp_p2p_slot *m) {
    const ndp_work *w = &p->receives[i].work;
    const ndp_transport *t = w->comm->transport;
    void *from;
    if (m->operation.count != w->count)
        return ndp_record_mismatch(w->comm, t->rank, record_of(w), ndp_comm_world_rank(w->comm, w->peer),
                                   &m->operation);
    NDP_TRY(p->space->resolve(p->space->context, m->buffer, &from));
    NDP_TRY(ndp_health_enter(t->health, t->rank));
    ndp_status st = copy_message(p, w, from, m);
    ndp_health_leave(t->health, t->rank);
    NDP_TRY(st);
    p->receives[i].copied = m->copied;
    ndp_gate_set(&m->taken, atomic_load_explicit(&m->order, memory_order_relaxed));
    return NDP_OK;
}

/* The oldest receive without a message among those from the rank and with the tag of receive i. */
static int oldest_like(const ndp_p2p *p, int i) {
    const ndp_work *w = &p->receives[i].work;
    int oldest = i;
    for (int k = 0; k < NDP_P2P_RECEIVES; k++) {
        const ndp_work *other = &p->receives[k].work;
        if (other->comm && !p->receives[k].done && other->peer == w->peer && other->tag == w->tag &&
            (int32_t)(p->receives[k].order - p->receives[oldest].order) < 0)
            oldest = k;
    }
    return oldest;
}

/* Receive i, after all that must come before it, as far as messages are there. */
static ndp_status try_receive(ndp_p2p *p, int i) {
    const ndp_work *w = &p->receives[i].work;
    while (w->comm && !p->receives[i].done) {
        int next = oldest_like(p, i);
        ndp_p2p_slot *m = find(channel_from(p, w->peer), w->tag);
        if (!m)
            return NDP_OK;
        NDP_TRY(copy_out(p, next, m));
        p->receives[next].done = true;
        p->comm->transport->pending_shares--;
    }
    return NDP_OK;
}

static ndp_status make_progress(ndp_progress_fn *f) {
    for (int i = 0; i < NDP_P2P_RECEIVES; i++)
        NDP_TRY(try_receive((ndp_p2p *)f, i));
    return NDP_OK;
}

static ndp_status receive_wait(ndp_p2p *p, ndp_work *w) {
    int i = (int)w->request[0];
    ndp_p2p_channel *channel = channel_from(p, w->peer);
    for (;;) {
        uint32_t seen = atomic_load_explicit(&channel->sent.value, memory_order_acquire);
        NDP_TRY(try_receive(p, i));
        if (p->receives[i].done)
            break;
        NDP_TRY(ndp_gate_wait(&channel->sent, seen + 1, w, w->peer, 1));
    }
    p->receives[i].work.comm = NULL;
    w->in_place = true;
    return ndp_lane_after(p->comm, w->queue, &p->receives[i].copied);
}

/* ---- the handle ---- */

void ndp_p2p_init(ndp_p2p *p, ndp_comm *c, ndp_node_members members, ndp_p2p_channel *channels,
                  const ndp_space *space) {
    *p = (ndp_p2p){
        .progress = {.run = make_progress}, .comm = c, .members = members, .channels = channels, .space = space};
    ndp_progress_fn_add(c->transport, &p->progress);
}

void ndp_p2p_release(ndp_p2p *p) {
    ndp_transport *t = p->comm->transport;
    for (int i = 0; i < NDP_P2P_RECEIVES; i++)
        t->pending_shares -= p->receives[i].work.comm && !p->receives[i].done;
    ndp_progress_fn_remove(t, &p->progress);
}

ndp_status ndp_p2p_begin(ndp_p2p *p, ndp_work *w) {
    return w->kind == NDP_WORK_SEND ? send_begin(p, w) : receive_begin(p, w);
}

ndp_status ndp_p2p_wait(ndp_p2p *p, ndp_work *w) {
    return w->kind == NDP_WORK_SEND ? send_wait(p, w) : receive_wait(p, w);
}
