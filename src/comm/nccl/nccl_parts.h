/* What the files of this folder share. */
#ifndef NDP_COMM_NCCL_NCCL_PARTS_H
#define NDP_COMM_NCCL_NCCL_PARTS_H

#include "comm/impl.h"
#include "comm/nccl/nccl_api.h"

/* A communicator of NCCL and the queue that its operations are submitted to; comm NULL: none. */
typedef struct nccl_link {
    void *comm;
    int *users; /* links that have it; shared by them */
    ndp_queue *queue;
    uint32_t messages; /* begun on it */
} nccl_link;

typedef struct nccl_comm {
    ndp_comm base;
    struct nccl_comm *next; /* of the transport */
    ndp_comm *host;         /* the same group, on the host's transport */
    nccl_link collectives;
    struct nccl_comm *shares;       /* whose queue its collectives run on; NULL: its own */
    nccl_link *to, *from;           /* for messages, by group rank; NULL before ndp_comm_connect */
    const struct nccl_comm *lender; /* whose communicator of NCCL it has, until it is connected; NULL: its own */
    bool *paired;                   /* [from, to] of all ranks of the group: there are messages */
    ndp_nccl_message *messages;     /* 2 a rank: those of one exchange */
    void *scratch;                  /* sums that are then added to a result */
    size_t scratch_bytes;
} nccl_comm;

typedef struct nccl_transport {
    ndp_transport base;
    const ndp_nccl_api *api;
    struct nccl_transport *next; /* of those beside the same transport of the host */
    nccl_comm *comms;
    bool aborted;
} nccl_transport;

/* Polls `comm` until NCCL has done what it was asked to. The host waits here for other hosts while ranks connect, never
 * for a device. NDP_ECOMM: NCCL's error, or the failure of a rank, or the time limit is over. */
ndp_status nccl_settle(nccl_transport *t, void *comm, const char *group);
/* The same for the begin of an operation, in which NCCL may connect the ranks. Over the time limit, the message says
 * which rank has not begun it. */
ndp_status nccl_settle_begin(nccl_comm *c, const nccl_link *link, const ndp_work *w);
/* NCCL's `error` on the communicator `group`. If a rank fails meanwhile, that is the reason, and named. */
ndp_status nccl_failed(nccl_transport *t, const char *group, const char *error);

/* Ends the operations of all communicators of all transports beside the same one of the host. */
void nccl_abort_all(nccl_transport *t);

ndp_status nccl_comm_create(ndp_transport *t, ndp_group group, const char *name, ndp_comm **out);
ndp_status nccl_comm_connect(ndp_comm *c, const uint64_t *sends, const uint64_t *receives);
void nccl_comm_share_queue(ndp_comm *c, ndp_comm *of);
void nccl_comm_destroy(ndp_comm *c);
/* Where the queue of its collectives is; NULL there before the first. */
static inline ndp_queue **nccl_queue_of(nccl_comm *c) {
    while (c->shares)
        c = c->shares;
    return &c->collectives.queue;
}

#endif
