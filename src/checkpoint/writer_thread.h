/* A thread of a rank that works for its saves while the rank goes on. Its error and its fault points are those of the
 * rank: both go to the thread when it begins, and come back when it has ended. */
#ifndef NDP_CHECKPOINT_WRITER_THREAD_H
#define NDP_CHECKPOINT_WRITER_THREAD_H

#include "base/fault.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct ndp_writer_thread {
    ndp_status (*work)(void *arg);
    void *arg;
    pthread_t thread;
    bool writes;         /* set by the caller: it passes fault points */
    bool begun, apart;   /* apart: a thread of its own; else the work was done in the call */
    atomic_bool working; /* until `work` has returned */
    ndp_status st;
    char *why; /* the message, if st is an error; NULL: no memory for it */
    ndp_faults faults;
    double seconds, processor; /* of all works so far */
} ndp_writer_thread;

/* Has a thread call work(arg). One that cannot be started is no failure: then this call does the work. The thread
 * handles no signals but those of its own faults. */
void ndp_writer_thread_begin(ndp_writer_thread *w, ndp_status (*work)(void *arg), void *arg);
static inline bool ndp_writer_thread_works(const ndp_writer_thread *w) {
    return atomic_load_explicit(&w->working, memory_order_acquire);
}
/* Waits for the work that was begun, if any: its status, whose message becomes this thread's. */
ndp_status ndp_writer_thread_end(ndp_writer_thread *w);

#endif
