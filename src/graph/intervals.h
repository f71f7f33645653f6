/* Interval allocation: blocks that live over an interval of steps get offsets in one memory so that no two that live at
 * the same time overlap. Greedy, each at the lowest offset that is free over its life, in the best of three orders: the
 * largest first, the longest-lived first, the earliest first. */
#ifndef NDP_GRAPH_INTERVALS_H
#define NDP_GRAPH_INTERVALS_H

#include "base/status.h"

typedef struct ndp_interval {
    size_t bytes;
    int first, last; /* steps, both included */
    size_t offset;   /* result, a multiple of 64 bytes */
} ndp_interval;

/* Sets the offsets; *total is the memory they need. NDP_ENOMEM. */
NDP_API ndp_status ndp_intervals_place(ndp_interval *items, int n, size_t *total);

#endif
