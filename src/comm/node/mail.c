#include "comm/node/mail.h"
#include "comm/rank_sum.h"

static ndp_mailbox *box_of(const ndp_post *p, int from, int to) {
    return &p->boxes[(int64_t)from * p->comm->group.count + to];
}

static ndp_mailbox *box_from(const ndp_post *p, int from) { return box_of(p, from, p->comm->group.rank); }
static ndp_mailbox *box_to(const ndp_post *p, int to) { return box_of(p, p->comm->group.rank, to); }

static const ndp_record *record_of(const ndp_work *w) {
    const ndp_transport *t = w->comm->transport;
    return ndp_journal_record(&t->journals[t->rank], w);
}

static bool is_waiting(ndp_mail *m, uint32_t *order) {
    *order = atomic_load_explicit(&m->order, memory_order_acquire);
    return *order != atomic_load_explicit(&m->taken.value, memory_order_acquire);
}

/* ---- sends: request[0] is the slot, request[1] the copy that the receiver reads, or 0 ---- */

static ndp_status show(const ndp_post *p, ndp_work *w, ndp_ref *out) {
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

static ndp_status send_begin(ndp_post *p, ndp_work *w) {
    ndp_mailbox *box = box_to(p, w->peer);
    uint32_t order;
    int i = 0;
    while (i < NDP_MAIL_SLOTS && is_waiting(&box->mail[i], &order))
        i++;
    if (i == NDP_MAIL_SLOTS)
        return NDP_FAIL(NDP_EBUG, "more than %d sends to rank %d wait to be received on group %s", NDP_MAIL_SLOTS,
                        ndp_comm_world_rank(w->comm, w->peer), w->comm->name);
    ndp_mail *m = &box->mail[i];
    order = atomic_load_explicit(&box->posted.value, memory_order_relaxed) + 1;
    NDP_TRY(show(p, w, &m->buffer));
    m->tag = w->tag;
    m->operation = *record_of(w);
    w->sequence = order;
    w->request[0] = (uint64_t)i;
    atomic_store_explicit(&m->order, order, memory_order_release);
    ndp_gate_set(&box->posted, order);
    p->sends++;
    return NDP_OK;
}

static ndp_status send_wait(ndp_post *p, ndp_work *w) {
    void *copy = (void *)(uintptr_t)w->request[1];
    p->sends--;
    w->in_place = !copy;
    NDP_TRY(ndp_gate_wait(&box_to(p, w->peer)->mail[w->request[0]].taken, w->sequence, w, w->peer, 0));
    if (copy)
        p->space->unstage(p->space->context, copy);
    return NDP_OK;
}

/* ---- receives ---- */

static ndp_status receive_begin(ndp_post *p, ndp_work *w) {
    int i = 0;
    while (i < NDP_MAIL_RECEIVES && p->receives[i].work.comm)
        i++;
    if (i == NDP_MAIL_RECEIVES)
        return NDP_FAIL(NDP_EBUG, "more than %d receives outstanding on group %s", NDP_MAIL_RECEIVES, w->comm->name);
    w->request[0] = (uint64_t)i;
    p->receives[i].work = *w;
    p->receives[i].order = p->asked++;
    p->receives[i].done = false;
    p->comm->transport->owed++;
    return NDP_OK;
}

/* The oldest message with this tag; NULL when there is none. */
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

static ndp_status take(const ndp_post *p, const ndp_work *w, ndp_mail *m) {
    const ndp_transport *t = w->comm->transport;
    void *from;
    if (m->operation.count != w->count)
        return ndp_record_disagreement(w->comm, t->rank, record_of(w), ndp_comm_world_rank(w->comm, w->peer),
                                       &m->operation);
    NDP_TRY(p->space->resolve(p->space->context, m->buffer, &from));
    NDP_TRY(ndp_health_enter(t->health, t->rank));
    ndp_copy_large(w->out, from, (size_t)w->count);
    ndp_health_leave(t->health, t->rank);
    ndp_gate_set(&m->taken, atomic_load_explicit(&m->order, memory_order_relaxed));
    return NDP_OK;
}

/* Is an older receive from that rank with that tag still without its message? */
static bool is_behind(const ndp_post *p, int i) {
    const ndp_work *w = &p->receives[i].work;
    for (int k = 0; k < NDP_MAIL_RECEIVES; k++) {
        const ndp_work *other = &p->receives[k].work;
        if (other->comm && !p->receives[k].done && other->peer == w->peer && other->tag == w->tag &&
            (int32_t)(p->receives[k].order - p->receives[i].order) < 0)
            return true;
    }
    return false;
}

/* Takes receive i's message, if it is there and its turn has come. */
static ndp_status serve(ndp_post *p, int i) {
    const ndp_work *w = &p->receives[i].work;
    if (!w->comm || p->receives[i].done || is_behind(p, i))
        return NDP_OK;
    ndp_mail *m = find(box_from(p, w->peer), w->tag);
    if (!m)
        return NDP_OK;
    NDP_TRY(take(p, w, m));
    p->receives[i].done = true;
    p->comm->transport->owed--;
    return NDP_OK;
}

static ndp_status do_duty(ndp_duty *d) {
    for (int i = 0; i < NDP_MAIL_RECEIVES; i++)
        NDP_TRY(serve((ndp_post *)d, i));
    return NDP_OK;
}

static ndp_status receive_wait(ndp_post *p, ndp_work *w) {
    int i = (int)w->request[0];
    ndp_mailbox *box = box_from(p, w->peer);
    for (;;) {
        uint32_t seen = atomic_load_explicit(&box->posted.value, memory_order_acquire);
        NDP_TRY(serve(p, i));
        if (p->receives[i].done)
            break;
        NDP_TRY(ndp_gate_wait(&box->posted, seen + 1, w, w->peer, 1));
    }
    p->receives[i].work.comm = NULL;
    w->in_place = true;
    return NDP_OK;
}

/* ---- the handle ---- */

void ndp_post_init(ndp_post *p, ndp_comm *c, ndp_mailbox *boxes, const ndp_space *space) {
    *p = (ndp_post){.duty = {.run = do_duty}, .comm = c, .boxes = boxes, .space = space};
    ndp_duty_add(c->transport, &p->duty);
}

void ndp_post_release(ndp_post *p) {
    ndp_transport *t = p->comm->transport;
    const char *why = ndp_error_message();
    if (p->sends)
        ndp_health_fail(t->health, t->rank, *why ? why : "messages were sent and not waited for");
    for (int i = 0; i < NDP_MAIL_RECEIVES; i++)
        t->owed -= p->receives[i].work.comm && !p->receives[i].done;
    ndp_duty_remove(t, &p->duty);
}

ndp_status ndp_post_begin(ndp_post *p, ndp_work *w) {
    return w->kind == NDP_WORK_SEND ? send_begin(p, w) : receive_begin(p, w);
}

ndp_status ndp_post_wait(ndp_post *p, ndp_work *w) {
    return w->kind == NDP_WORK_SEND ? send_wait(p, w) : receive_wait(p, w);
}
