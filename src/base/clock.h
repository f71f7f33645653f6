/* Monotonic time in seconds. */
#ifndef NDP_BASE_CLOCK_H
#define NDP_BASE_CLOCK_H

#include <time.h>

static inline double ndp_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

#endif
