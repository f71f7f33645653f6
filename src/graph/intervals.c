#include "graph/intervals.h"

#include <stdlib.h>

static size_t aligned(size_t n) { return (n + 63) & ~(size_t)63; }

/* Total orders all of them: the plan is the same on every rank. */
static int by_start(const void *a, const void *b) {
    const ndp_interval *x = *(ndp_interval *const *)a, *y = *(ndp_interval *const *)b;
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    return x < y ? -1 : x > y;
}

static int by_size(const void *a, const void *b) {
    const ndp_interval *x = *(ndp_interval *const *)a, *y = *(ndp_interval *const *)b;
    return x->bytes != y->bytes ? (x->bytes < y->bytes ? 1 : -1) : by_start(a, b);
}

static int by_life(const void *a, const void *b) {
    const ndp_interval *x = *(ndp_interval *const *)a, *y = *(ndp_interval *const *)b;
    int lx = x->last - x->first, ly = y->last - y->first;
    return lx != ly ? (lx < ly ? 1 : -1) : by_size(a, b);
}

/* Bytes times the time they are held. */
static int by_area(const void *a, const void *b) {
    const ndp_interval *x = *(ndp_interval *const *)a, *y = *(ndp_interval *const *)b;
    double ax = (double)x->bytes * (double)(x->last - x->first + 1);
    double ay = (double)y->bytes * (double)(y->last - y->first + 1);
    return ax != ay ? (ax < ay ? 1 : -1) : by_start(a, b);
}

static int by_offset(const void *a, const void *b) {
    const ndp_interval *x = *(ndp_interval *const *)a, *y = *(ndp_interval *const *)b;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* The lowest gap that holds `item` between those placed blocks that live at the same time. */
static size_t lowest_gap(const ndp_interval *item, ndp_interval **placed, int n, ndp_interval **alive) {
    int n_alive = 0;
    for (int i = 0; i < n; i++)
        if (placed[i]->first <= item->last && item->first <= placed[i]->last)
            alive[n_alive++] = placed[i];
    qsort(alive, (size_t)n_alive, sizeof *alive, by_offset);
    size_t at = 0;
    for (int i = 0; i < n_alive; i++) {
        if (alive[i]->offset >= at + aligned(item->bytes))
            break;
        size_t end = alive[i]->offset + aligned(alive[i]->bytes);
        at = end > at ? end : at;
    }
    return at;
}

/* Places all in this order; returns the memory that takes. */
static size_t place_in(ndp_interval **order, int n, ndp_interval **alive) {
    size_t end = 0;
    for (int i = 0; i < n; i++) {
        order[i]->offset = lowest_gap(order[i], order, i, alive);
        if (order[i]->offset + aligned(order[i]->bytes) > end)
            end = order[i]->offset + aligned(order[i]->bytes);
    }
    return end;
}

ndp_status ndp_intervals_place(ndp_interval *items, int n, size_t *total) {
    static int (*const orders[])(const void *, const void *) = {by_size, by_life, by_start, by_area};
    ndp_interval **order = malloc(2 * ((size_t)n + 1) * sizeof *order);
    if (!order)
        return NDP_FAIL(NDP_ENOMEM, "no memory to plan %d blocks", n);
    size_t least = SIZE_MAX;
    int best = 0;
    for (int i = 0; i < n; i++)
        order[i] = &items[i];
    for (int k = 0; k <= NDP_COUNT(orders); k++) { /* the last round is the best one again */
        qsort(order, (size_t)n, sizeof *order, orders[k < NDP_COUNT(orders) ? k : best]);
        size_t end = place_in(order, n, order + n + 1);
        if (end < least)
            least = end, best = k;
    }
    free(order);
    *total = least;
    return NDP_OK;
}
