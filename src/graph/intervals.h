/* Interval allocation: blocks that live over an interval of steps get offsets in one memory so that no two that live at
 * the same time overlap. Greedy, each at the lowest offset that is free over its life, in several orders: the largest
 * first, the longest-lived, the earliest, the largest by size x life. If the best plan takes 4% and 64 KiB more than
 * what lives at once, a local search over orders follows, for sets of up to 300 blocks. The same set has the same plan
 * everywhere.
 */
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
