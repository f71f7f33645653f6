/* Time in seconds. */
#ifndef NDP_BASE_CLOCK_H
#define NDP_BASE_CLOCK_H

#include <time.h>

static inline double ndp_clock_seconds(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Monotonic. */
static inline double ndp_now(void) { return ndp_clock_seconds(CLOCK_MONOTONIC); }
/* Since 1970, UTC. */
static inline double ndp_time(void) { return ndp_clock_seconds(CLOCK_REALTIME); }
/* CPU time of the calling thread: stands still while the thread does not run. */
static inline double ndp_thread_now(void) { return ndp_clock_seconds(CLOCK_THREAD_CPUTIME_ID); }

#endif
