/* Walks over lists with repeated ranges. */
#include "graph/repeat.h"

/* Iterations of a range that are not visited. */
static int64_t left_out(const ndp_repeat *x, ndp_visits v) {
    int64_t others = x->times > v.first ? x->times - v.first : 0;
    return others < v.without ? others : v.without;
}

/* The first iteration from i on that is visited. */
static int64_t visited_from(const ndp_repeat *x, ndp_visits v, int64_t i) {
    return i == v.first ? i + left_out(x, v) : i;
}

static int64_t times_of(const ndp_repeat *x, ndp_visits v) {
    int64_t most = v.usual ? 0 : 2;
    return x->counted && x->times > most ? most : x->times;
}

bool ndp_walk_next(const ndp_repeats *r, int n, ndp_visits visits, ndp_walk *w) {
    for (int i = 0; w->executed < 0 && i < r->n; i++)
        w->micro_batch = w->after += left_out(&r->items[i], visits) * r->items[i].micro_batches;
    if (w->executed < 0 && r->n > 0)
        w->turn = left_out(&r->items[0], visits);
    w->at++;
    w->executed++;
    while (w->range < r->n && w->at <= r->items[w->range].first + r->items[w->range].n) {
        const ndp_repeat *x = &r->items[w->range];
        int64_t times = times_of(x, visits), next = visited_from(x, visits, w->iteration + 1);
        bool ends = w->at == x->first + x->n, skipped = w->at == x->first && w->iteration == 0 && times == 0;
        if (ends && next < times) {
            w->at = x->first;
            w->iteration = next;
            w->micro_batch += x->micro_batches;
            w->turn++;
            break;
        }
        if (!ends && !skipped)
            break;
        w->at = x->first + x->n;
        w->iteration = 0;
        w->after -= left_out(x, visits) * x->micro_batches;
        w->micro_batch = w->after;
        w->range++;
        w->turn = w->range < r->n ? left_out(&r->items[w->range], visits) : 0;
    }
    return w->at < n;
}

int64_t ndp_repeats_executed(const ndp_repeats *r, int n) {
    int64_t sum = n;
    for (int i = 0; i < r->n && r->items[i].first < n; i++)
        sum += ((r->items[i].counted ? 0 : r->items[i].times) - 1) * r->items[i].n;
    return sum;
}

int64_t ndp_repeats_times(const ndp_repeats *r, int i) {
    for (int k = 0; k < r->n; k++)
        if (r->items[k].first <= i && i < r->items[k].first + r->items[k].n)
            return r->items[k].counted ? 0 : r->items[k].times;
    return 1;
}
