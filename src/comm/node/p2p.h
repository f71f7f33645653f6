/* Messages between ranks that can read each other's memory. The receiver copies straight out of the sender's buffer, or
 * out of the copy that the sender makes of a buffer that peers cannot read. So a message arrives while its sender
 * computes. Each ordered pair of ranks has a channel of NDP_P2P_SLOTS messages that are sent and not yet received. */
#ifndef NDP_COMM_NODE_P2P_H
#define NDP_COMM_NODE_P2P_H

#include "comm/node/shm.h"

enum { NDP_P2P_SLOTS = NDP_MOST_SENDS, NDP_P2P_RECEIVES = NDP_MOST_RECEIVES };

/* order: the sender's number of the message, from 1. taken: the order of the last message that was copied out of this
 * slot, written by the receiver alone. The slot holds a message while the two differ. */
typedef struct ndp_p2p_slot {
    ndp_gate taken;
    _Atomic uint32_t order;
    int tag;
    ndp_ref buffer;
    ndp_mark ready, copied; /* on a device (lane.h) */
    ndp_record operation;
} ndp_p2p_slot;

typedef struct ndp_p2p_channel {
    ndp_gate sent; /* the order of the last message */
    ndp_p2p_slot slot[NDP_P2P_SLOTS];
} ndp_p2p_channel;

/* The ranks of a group that share memory. place: of each rank of the group among them, -1 for a rank of another node;
 * NULL: all share memory, and a rank's place is its group rank. */
typedef struct ndp_node_members {
    int count;
    const int *place;
} ndp_node_members;

/* One rank's handle. Receives that have begun are completed, oldest first, whenever this rank waits for anything. */
typedef struct ndp_p2p {
    ndp_progress_fn progress;
    ndp_comm *comm;
    ndp_node_members members;
    ndp_p2p_channel *channels; /* [place of the sender x members + place of the receiver], zeroed */
    const ndp_space *space;
    uint32_t receives_begun; /* so far */
    struct {
        ndp_work work; /* comm == NULL: free */
        uint32_t order;
        bool done;
        ndp_mark copied; /* on a device: the end of the copy */
    } receives[NDP_P2P_RECEIVES];
} ndp_p2p;

void ndp_p2p_init(ndp_p2p *p, ndp_comm *c, ndp_node_members members, ndp_p2p_channel *channels, const ndp_space *space);
void ndp_p2p_release(ndp_p2p *p);

/* Sends and receives. */
ndp_status ndp_p2p_begin(ndp_p2p *p, ndp_work *w);
ndp_status ndp_p2p_wait(ndp_p2p *p, ndp_work *w);

#endif
