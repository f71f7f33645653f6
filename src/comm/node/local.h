/* The world of the `local` transport: what its ranks share. local_world.c runs the ranks; the transport's table is in
 * local.c. */
#ifndef NDP_COMM_NODE_LOCAL_H
#define NDP_COMM_NODE_LOCAL_H

#include "comm/impl.h"
#include "comm/watch/health.h"
#include "comm/watch/journal.h"

#include <pthread.h>

typedef struct ndp_local {
    pthread_mutex_t lock; /* guards groups, numbered, shared, handles, queues, first_status, stopped */
    struct local_queue *queues;
    uint32_t numbered; /* groups */
    struct local_group *groups;
    struct local_shared *shared;
    ndp_health *health;
    ndp_journal *journals; /* [ranks] */
    ndp_status (*body)(ndp_transport *, void *);
    void *arg;
    ndp_status first_status;
    char stopped[256]; /* the message of the first rank that a signal stopped; "": none */
} ndp_local;

typedef struct ndp_local_transport {
    ndp_transport base;
    ndp_local *world;
} ndp_local_transport;

extern const ndp_transport_ops ndp_local_ops;
/* Frees what the ranks have left: groups, shared windows, queues. */
void ndp_local_release(ndp_local *world);

#endif
