/* A wait without a gate, in the journal: it is entered when it begins, so peers see what this rank waits for, and
 * looked at now and then for a rank that has not begun the operation. */
#include "comm/watch/op_wait.h"
#include "base/clock.h"

static ndp_journal *journal_of(const ndp_op_wait *o) {
    const ndp_transport *t = o->work.comm->transport;
    return &t->journals[t->rank];
}

/* What this rank expects of the others: the same collective, or the other half of the message. */
static ndp_expected_op expected_by(const ndp_work *w, uint32_t sequence, bool on_host) {
    const ndp_comm *c = w->comm;
    return (ndp_expected_op){.base = c->group.base,
                             .comm = c->number,
                             .sequence = sequence,
                             .to = ndp_work_is_message(w) ? c->transport->rank : -1,
                             .receive = w->kind == NDP_WORK_SEND,
                             .on_host = on_host};
}

void ndp_op_wait_begin(ndp_op_wait *o, const ndp_work *w, const ndp_call_site *at, bool on_host) {
    *o = (ndp_op_wait){.work = {.comm = w->comm, .kind = w->kind, .peer = w->peer, .record = w->record},
                       .watchdog = {.next = ndp_now()}};
    ndp_journal *j = journal_of(o);
    o->expected = expected_by(w, ndp_journal_record(j, w)->sequence, on_host);
    ndp_journal_device_wait_begin(j, w, at, ndp_work_is_message(w) ? ndp_comm_world_rank(w->comm, w->peer) : -1);
}

ndp_status ndp_op_wait_look(ndp_op_wait *o, double now) {
    NDP_TRY(ndp_watchdog_find_missing(&o->watchdog, &o->expected, &o->work, now));
    return ndp_watchdog_find_cycle(&o->watchdog, o->work.comm->transport, now);
}

ndp_status ndp_op_wait_check_limit(const ndp_op_wait *o, double since, double now) {
    return ndp_watchdog_check_limit(&o->work, -1, since, now);
}

void ndp_op_wait_end(const ndp_op_wait *o) { ndp_journal_wait_end(journal_of(o)); }
