/* Hands collectives to shm.c and messages to p2p.c. The shared block is the ranks of shm.c, if there are collectives,
 * and then the channels of p2p.c. */
#include "comm/node/peers.h"
#include "comm/watch/health.h"

static size_t bytes_for_collectives(ndp_node_members m) { return m.place ? 0 : (size_t)m.count * sizeof(ndp_shm_rank); }

size_t ndp_peers_bytes(ndp_node_members m) {
    return bytes_for_collectives(m) + (size_t)m.count * (size_t)m.count * sizeof(ndp_p2p_channel);
}

ndp_status ndp_peers_init(ndp_peers *p, ndp_comm *c, ndp_node_members members, void *block, const ndp_space *space) {
    void *channels = (char *)block + bytes_for_collectives(members);
    *p = (ndp_peers){0};
    if (!members.place)
        NDP_TRY(ndp_shm_init(&p->shm, c, block, space));
    ndp_p2p_init(&p->p2p, c, members, channels, space);
    return NDP_OK;
}

void ndp_peers_release(ndp_peers *p) {
    ndp_p2p_release(&p->p2p);
    if (p->shm.comm)
        ndp_shm_release(&p->shm);
}

ndp_status ndp_peers_begin(ndp_peers *p, ndp_work *w) {
    return ndp_work_is_message(w) ? ndp_p2p_begin(&p->p2p, w) : ndp_shm_begin(&p->shm, w);
}

ndp_status ndp_peers_wait(ndp_peers *p, ndp_work *w) {
    ndp_transport *t = w->comm->transport;
    ndp_status st = ndp_work_is_message(w) ? ndp_p2p_wait(&p->p2p, w) : ndp_shm_wait(&p->shm, w);
    if (st == NDP_OK)
        return NDP_OK;
    st = ndp_transport_explain(t, st); /* where the device was: peers see the message as it is now */
    ndp_health_fail_wait(t->health, t->rank, ndp_error_message());
    return st;
}
