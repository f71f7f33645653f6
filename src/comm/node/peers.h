/* A communicator of ranks that can access each other's memory: collectives (shm.h), if all of its ranks can, and
 * messages (p2p.h) between those that can. */
#ifndef NDP_COMM_NODE_PEERS_H
#define NDP_COMM_NODE_PEERS_H

#include "comm/node/p2p.h"
#include "comm/node/shm.h"

typedef struct ndp_peers {
    ndp_shm shm; /* only if all ranks of the group are members */
    ndp_p2p p2p;
} ndp_peers;

/* Bytes that the members share; zeroed, 64-byte aligned. */
size_t ndp_peers_bytes(ndp_node_members members);
/* `block`: the members' ndp_peers_bytes. members.place is borrowed. */
ndp_status ndp_peers_init(ndp_peers *p, ndp_comm *c, ndp_node_members members, void *block, const ndp_space *space);
void ndp_peers_release(ndp_peers *p);

/* A message between two members, or a collective of members who are all ranks of the group. */
ndp_status ndp_peers_begin(ndp_peers *p, ndp_work *w);
/* A failure ends the run for all ranks. */
ndp_status ndp_peers_wait(ndp_peers *p, ndp_work *w);

#endif
