#include "comm/node/peers.h"

size_t ndp_peers_bytes(int count) {
    size_t n = (size_t)count;
    return n * sizeof(ndp_shm_rank) + n * n * sizeof(ndp_mailbox);
}

ndp_status ndp_peers_init(ndp_peers *p, ndp_comm *c, void *block, const ndp_space *space) {
    ndp_shm_rank *ranks = block;
    NDP_TRY(ndp_shm_init(&p->shm, c, ranks, space));
    ndp_post_init(&p->post, c, (ndp_mailbox *)(ranks + c->group.count), space);
    return NDP_OK;
}

void ndp_peers_release(ndp_peers *p) {
    ndp_post_release(&p->post);
    ndp_shm_release(&p->shm);
}

ndp_status ndp_peers_begin(ndp_peers *p, ndp_work *w) {
    return ndp_work_is_message(w) ? ndp_post_begin(&p->post, w) : ndp_shm_begin(&p->shm, w);
}

ndp_status ndp_peers_wait(ndp_peers *p, ndp_work *w) {
    ndp_transport *t = w->comm->transport;
    ndp_status st = ndp_work_is_message(w) ? ndp_post_wait(&p->post, w) : ndp_shm_wait(&p->shm, w);
    if (st != NDP_OK)
        ndp_health_fail(t->health, t->rank, ndp_error_message());
    return st;
}
