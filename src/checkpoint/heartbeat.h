/* A thread that increments the counter of a lock (lock.h), so that a long step is not taken for death. Internal to the
 * room. */
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

/* Increments the counter in `fd`, which holds `holder`, many times in `patience` seconds. Takes `fd`: closed by end,
 * also when this fails. The thread handles no signals. What cannot be written is left: a process that takes that for
 * death is found by ndp_lock_check. */
NDP_API ndp_status ndp_heartbeat_begin(ndp_heartbeat *b, int fd, const ndp_holder *holder, double patience);
/* Waits for the thread to end. */
void ndp_heartbeat_end(ndp_heartbeat *b);

#endif
