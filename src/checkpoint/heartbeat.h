/* A thread that increments the counter of a lock (lock.h), so that the holder does not seem dead during a long step.
 * Internal to the room. */
#ifndef NDP_CHECKPOINT_HEARTBEAT_H
#define NDP_CHECKPOINT_HEARTBEAT_H

#include "checkpoint/holder.h"

#include <pthread.h>

typedef struct ndp_heartbeat {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t wake; /* on the monotonic clock */
    bool ending;
    int fd;
    double seconds; /* from one beat to the next */
    ndp_holder holder;
} ndp_heartbeat;

/* Increments the counter in `fd`, which contains `holder`, many times per `patience` seconds. Takes ownership of `fd`:
 * ndp_heartbeat_end closes it, and so does a failure of this call. The thread handles no signals. Failed writes are
 * ignored: if another process concludes that the holder is dead, ndp_lock_check detects that. */
NDP_API ndp_status ndp_heartbeat_begin(ndp_heartbeat *b, int fd, const ndp_holder *holder, double patience);
/* Waits for the thread to end. */
void ndp_heartbeat_end(ndp_heartbeat *b);

#endif
