/* Placing blocks that live for an interval: the lowest gap, in several orders, of which the best is taken. */
#include "graph/intervals.h"

#include <stdlib.h>
#include <string.h>

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

/* Room for one plan. */
typedef struct planning {
    ndp_interval **order, **alive;
    int (*lives)[2]; /* first and last of those placed, side by side: nearly all time goes into looking through them */
    size_t *offsets; /* of the best plan so far, by item */
    size_t least;
} planning;

/* The lowest gap that holds `item` between those of the first n placed blocks that live at the same time. */
static size_t lowest_gap(const planning *p, const ndp_interval *item, int n) {
    int n_alive = 0;
    for (int i = 0; i < n; i++)
        if (p->lives[i][0] <= item->last && item->first <= p->lives[i][1])
            p->alive[n_alive++] = p->order[i];
    qsort(p->alive, (size_t)n_alive, sizeof *p->alive, by_offset);
    size_t at = 0;
    for (int i = 0; i < n_alive; i++) {
        if (p->alive[i]->offset >= at + aligned(item->bytes))
            break;
        size_t end = p->alive[i]->offset + aligned(p->alive[i]->bytes);
        at = end > at ? end : at;
    }
    return at;
}

/* Places all in the order at hand, and notes the plan if it takes the least memory. */
static void place_all(planning *p, const ndp_interval *items, int n) {
    size_t end = 0;
    for (int i = 0; i < n; i++) {
        ndp_interval *item = p->order[i];
        item->offset = lowest_gap(p, item, i);
        p->lives[i][0] = item->first, p->lives[i][1] = item->last;
        if (item->offset + aligned(item->bytes) > end)
            end = item->offset + aligned(item->bytes);
    }
    for (int i = 0; end < p->least && i < n; i++)
        p->offsets[i] = items[i].offset;
    p->least = end < p->least ? end : p->least;
}

/* The block that reaches highest is placed first in the next try. Small sets only: each try costs n^2. */
static void lift_the_highest(planning *p, const ndp_interval *items, int n) {
    enum { TRIES = 12, MOST = 300 };
    for (int k = 0; k < TRIES && n > 1 && n <= MOST; k++) {
        int top = 0;
        for (int i = 1; i < n; i++)
            if (p->order[i]->offset + p->order[i]->bytes > p->order[top]->offset + p->order[top]->bytes)
                top = i;
        ndp_interval *first = p->order[top];
        memmove(p->order + 1, p->order, (size_t)top * sizeof *p->order);
        p->order[0] = first;
        place_all(p, items, n);
    }
}

static void plan(planning *p, ndp_interval *items, int n) {
    static int (*const orders[])(const void *, const void *) = {by_size, by_life, by_start, by_area};
    for (int i = 0; i < n; i++)
        p->order[i] = &items[i];
    for (int k = 0; k < NDP_COUNT(orders); k++) {
        qsort(p->order, (size_t)n, sizeof *p->order, orders[k]);
        place_all(p, items, n);
        lift_the_highest(p, items, n);
    }
    for (int i = 0; i < n; i++)
        items[i].offset = p->offsets[i];
}

ndp_status ndp_intervals_place(ndp_interval *items, int n, size_t *total) {
    size_t room = (size_t)n + 1;
    planning p = {.order = malloc(room * sizeof *p.order),
                  .alive = malloc(room * sizeof *p.alive),
                  .lives = malloc(room * sizeof *p.lives),
                  .offsets = malloc(room * sizeof *p.offsets),
                  .least = SIZE_MAX};
    ndp_status st = NDP_OK;
    if (!p.order || !p.alive || !p.lives || !p.offsets)
        st = NDP_FAIL(NDP_ENOMEM, "no memory to plan %d blocks", n);
    else
        plan(&p, items, n);
    *total = st == NDP_OK && n > 0 ? p.least : 0;
    free(p.order);
    free(p.alive);
    free(p.lives);
    free(p.offsets);
    return st;
}
