/* Messages between ranks that can read each other's memory (`local`): the receiver copies straight out of the sender's
 * buffer. For every ordered pair of ranks there is a box of NDP_MAIL_SLOTS messages posted and not yet taken. */
#ifndef NDP_COMM_MAIL_H
#define NDP_COMM_MAIL_H

#include "comm/wait.h"

enum { NDP_MAIL_SLOTS = 16 };

/* order: the sender's number of the message, from 1. taken: the order of the last message that was copied out, written
 * by the receiver alone. A message waits in the slot while the two differ. */
typedef struct ndp_mail {
    ndp_gate taken;
    _Atomic uint32_t order;
    int tag;
    int64_t bytes;
    const void *buffer;
} ndp_mail;

typedef struct ndp_mailbox {
    ndp_gate posted; /* the order of the last message posted */
    ndp_mail mail[NDP_MAIL_SLOTS];
} ndp_mailbox;

/* boxes[from x size + to], all zeros at first. */
ndp_status ndp_mail_send_begin(ndp_mailbox *boxes, ndp_work *w);
ndp_status ndp_mail_send_wait(ndp_mailbox *boxes, ndp_work *w);
/* Messages of one sender with one tag are received in the order they were sent. */
ndp_status ndp_mail_recv_wait(ndp_mailbox *boxes, ndp_work *w);

#endif
