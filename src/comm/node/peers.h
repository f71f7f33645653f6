/* A communicator of ranks that can access each other's memory: collectives (shm.h) and messages (p2p.h) together. */
#ifndef NDP_COMM_NODE_PEERS_H
#define NDP_COMM_NODE_PEERS_H

#include "comm/node/p2p.h"
#include "comm/node/shm.h"

typedef struct ndp_peers {
    ndp_shm shm;
    ndp_p2p p2p;
} ndp_peers;

/* Bytes that the `count` ranks of a group share; zeroed, 64-byte aligned. */
size_t ndp_peers_bytes(int count);
/* `block`: the group's ndp_peers_bytes. */
ndp_status ndp_peers_init(ndp_peers *p, ndp_comm *c, void *block, const ndp_space *space);
void ndp_peers_release(ndp_peers *p);

ndp_status ndp_peers_begin(ndp_peers *p, ndp_work *w);
/* A failure ends the run for all ranks. */
ndp_status ndp_peers_wait(ndp_peers *p, ndp_work *w);

#endif
