#include "comm/node/peers.h"
#include "comm/watch/health.h"

size_t ndp_peers_bytes(int count) {
    size_t n = (size_t)count;
    return n * sizeof(ndp_shm_rank) + n * n * sizeof(ndp_p2p_channel);
}

ndp_status ndp_peers_init(ndp_peers *p, ndp_comm *c, void *block, const ndp_space *space) {
    ndp_shm_rank *ranks = block;
    NDP_TRY(ndp_shm_init(&p->shm, c, ranks, space));
    ndp_p2p_init(&p->p2p, c, (ndp_p2p_channel *)(ranks + c->group.count), space);
    return NDP_OK;
}

void ndp_peers_release(ndp_peers *p) {
    ndp_p2p_release(&p->p2p);
    ndp_shm_release(&p->shm);
}

ndp_status ndp_peers_begin(ndp_peers *p, ndp_work *w) {
    return ndp_work_is_message(w) ? ndp_p2p_begin(&p->p2p, w) : ndp_shm_begin(&p->shm, w);
}

ndp_status ndp_peers_wait(ndp_peers *p, ndp_work *w) {
    ndp_transport *t = w->comm->transport;
    ndp_status st = ndp_work_is_message(w) ? ndp_p2p_wait(&p->p2p, w) : ndp_shm_wait(&p->shm, w);
    if (st != NDP_OK)
        ndp_health_fail(t->health, t->rank, ndp_error_message());
    return st;
}
