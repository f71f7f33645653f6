#include "comm/mail.h"
#include "comm/reduce.h"

static ndp_mailbox *box_of(ndp_mailbox *boxes, const ndp_comm *c, int from, int to) {
    return &boxes[(int64_t)from * c->group.count + to];
}

static bool is_waiting(ndp_mail *m, uint32_t *order) {
    *order = atomic_load_explicit(&m->order, memory_order_acquire);
    return *order != atomic_load_explicit(&m->taken.value, memory_order_acquire);
}

ndp_status ndp_mail_send_begin(ndp_mailbox *boxes, ndp_work *w) {
    ndp_mailbox *box = box_of(boxes, w->comm, w->comm->group.rank, w->peer);
    uint32_t order;
    int i = 0;
    while (i < NDP_MAIL_SLOTS && is_waiting(&box->mail[i], &order))
        i++;
    if (i == NDP_MAIL_SLOTS)
        return NDP_FAIL(NDP_EBUG, "more than %d sends to rank %d wait to be received on group %s", NDP_MAIL_SLOTS,
                        ndp_comm_world_rank(w->comm, w->peer), w->comm->name);
    ndp_mail *m = &box->mail[i];
    order = atomic_load_explicit(&box->posted.value, memory_order_relaxed) + 1;
    m->tag = w->tag;
    m->bytes = w->count;
    m->buffer = w->in;
    w->sequence = order;
    w->request[0] = (uint64_t)i;
    atomic_store_explicit(&m->order, order, memory_order_release);
    ndp_gate_set(&box->posted, order);
    return NDP_OK;
}

ndp_status ndp_mail_send_wait(ndp_mailbox *boxes, ndp_work *w) {
    ndp_mailbox *box = box_of(boxes, w->comm, w->comm->group.rank, w->peer);
    return ndp_gate_wait(&box->mail[w->request[0]].taken, w->sequence, w, w->peer);
}

/* The oldest message of that tag, or NULL. */
static ndp_mail *find(ndp_mailbox *box, int tag) {
    ndp_mail *best = NULL;
    uint32_t best_order = 0;
    for (int i = 0; i < NDP_MAIL_SLOTS; i++) {
        ndp_mail *m = &box->mail[i];
        uint32_t order;
        if (is_waiting(m, &order) && m->tag == tag && (!best || (int32_t)(order - best_order) < 0)) {
            best = m;
            best_order = order;
        }
    }
    return best;
}

ndp_status ndp_mail_recv_wait(ndp_mailbox *boxes, ndp_work *w) {
    const ndp_transport *t = w->comm->transport;
    ndp_mailbox *box = box_of(boxes, w->comm, w->peer, w->comm->group.rank);
    ndp_mail *m;
    for (;;) {
        uint32_t seen = atomic_load_explicit(&box->posted.value, memory_order_acquire);
        m = find(box, w->tag);
        if (m)
            break;
        NDP_TRY(ndp_gate_wait(&box->posted, seen + 1, w, w->peer));
    }
    if (m->bytes != w->count)
        return NDP_FAIL(NDP_EBUG, "rank %d expects %lld bytes with tag %d from rank %d on group %s, which sent %lld",
                        t->rank, (long long)w->count, w->tag, ndp_comm_world_rank(w->comm, w->peer), w->comm->name,
                        (long long)m->bytes);
    NDP_TRY(ndp_health_enter(t->health, t->rank));
    ndp_copy_large(w->out, m->buffer, (size_t)m->bytes);
    ndp_health_leave(t->health, t->rank);
    ndp_gate_set(&m->taken, atomic_load_explicit(&m->order, memory_order_relaxed));
    return NDP_OK;
}
