/* Interval allocation: blocks that live over an interval of steps get offsets in one memory so that no two that live at
 * the same time overlap. Greedy, each at the lowest offset that is free over its life, in several orders: the largest
 * first, the longest-lived, the earliest, the largest by size x life, those that end last. If the best plan takes 4%
 * and 64 KiB more than what lives at once, a local search over orders follows, for sets of up to 300 blocks. The same
 * set has the same plan everywhere.
 *
 * A life may have one gap: a block of a repeated range (repeat.h) that an iteration frees and then takes again for the
 * next one. */
#ifndef NDP_GRAPH_INTERVALS_H
#define NDP_GRAPH_INTERVALS_H

#include "base/status.h"

typedef struct ndp_life {
    int first, last; /* steps, both included */
    int gap, gap_n;  /* free again for gap_n steps from `gap` on, inside of them; 0: never */
} ndp_life;

static inline bool ndp_lives_at(const ndp_life *a, int step) {
    return a->first <= step && step <= a->last && !(a->gap_n > 0 && a->gap <= step && step < a->gap + a->gap_n);
}
/* True if both live at some step. */
static inline bool ndp_lives_meet(const ndp_life *a, const ndp_life *b) {
    if (a->first > b->last || b->first > a->last)
        return false;
    if (a->gap_n > 0) {
        ndp_life before = {a->first, a->gap - 1, 0, 0}, after = {a->gap + a->gap_n, a->last, 0, 0};
        return ndp_lives_meet(&before, b) || ndp_lives_meet(&after, b);
    }
    return b->gap_n == 0 || a->first < b->gap || a->last >= b->gap + b->gap_n;
}

typedef struct ndp_interval {
    size_t bytes;
    ndp_life life;
    size_t offset; /* result, a multiple of 64 bytes */
} ndp_interval;

/* The most bytes that live at once: no plan takes less. 0 without memory to find it. */
size_t ndp_intervals_peak(const ndp_interval *items, int n);

/* Sets the offsets; *total is the memory they need. Of many blocks, a plan that takes no more than `enough` is not made
 * better. NDP_ENOMEM. */
NDP_API ndp_status ndp_intervals_place(ndp_interval *items, int n, size_t enough, size_t *total);

#endif
