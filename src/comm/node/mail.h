/* Messages between ranks that can read each other's memory: the receiver copies straight out of the sender's buffer, or
 * out of the copy that the sender makes of a buffer that peers cannot reach. For every ordered pair of ranks there is a
 * box of NDP_MAIL_SLOTS messages posted and not yet taken. */
#ifndef NDP_COMM_NODE_MAIL_H
#define NDP_COMM_NODE_MAIL_H

#include "comm/node/shm.h"

enum { NDP_MAIL_SLOTS = 16, NDP_MAIL_RECEIVES = 32 };

/* order: the sender's number of the message, from 1. taken: the order of the last message that was copied out, written
 * by the receiver alone. A message waits in the slot while the two differ. */
typedef struct ndp_mail {
    ndp_gate taken;
    _Atomic uint32_t order;
    int tag;
    ndp_ref buffer;
    ndp_record operation;
} ndp_mail;

typedef struct ndp_mailbox {
    ndp_gate posted; /* the order of the last message posted */
    ndp_mail mail[NDP_MAIL_SLOTS];
} ndp_mailbox;

/* One rank's handle. Receives that were begun are served, oldest first, whenever this rank waits for anything. */
typedef struct ndp_post {
    ndp_duty duty;
    ndp_comm *comm;
    ndp_mailbox *boxes; /* [from x size + to], all zeros at first */
    const ndp_space *space;
    int sends;      /* begun and not waited for */
    uint32_t asked; /* receives begun so far */
    struct {
        ndp_work work; /* comm == NULL: a free place */
        uint32_t order;
        bool done;
    } receives[NDP_MAIL_RECEIVES];
} ndp_post;

void ndp_post_init(ndp_post *p, ndp_comm *c, ndp_mailbox *boxes, const ndp_space *space);
/* A rank that gives up messages it has begun ends the run, as ndp_shm_release does. */
void ndp_post_release(ndp_post *p);

/* Sends and receives. */
ndp_status ndp_post_begin(ndp_post *p, ndp_work *w);
ndp_status ndp_post_wait(ndp_post *p, ndp_work *w);

#endif
