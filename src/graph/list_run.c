/* Running a list of a unit program: its calls in order, and its ranges as often as the data say. */
#include "graph/lower.h"

/* How often a range is executed this time. */
static ndp_status read_count(const ndp_list *list, int range, const ndp_call_opts *opts, int64_t *times) {
    const ndp_operand *o = &list->counts[range];
    const ndp_device *d = opts->exec->device;
    int64_t most = list->repeats.items[range].times, count;
    if (o->base == NDP_NONE)
        return NDP_OK;
    const void *at = (const char *)opts->bases[o->base] + o->offset;
    if (d->host_memory) {
        count = *(const int64_t *)at;
    } else {
        NDP_TRY(ndp_call_drain(opts)); /* a copy to memory that is not pinned may block the host */
        NDP_TRY(d->copy(opts->queue, &count, sizeof count, at, sizeof count, sizeof count, 1));
        NDP_TRY(ndp_call_drain(opts));
    }
    NDP_CHECK(count >= 0 && count <= most, "calls %d to %d are to run %lld times; a count from 0 to %lld was planned",
              list->repeats.items[range].first, list->repeats.items[range].first + list->repeats.items[range].n - 1,
              (long long)count, (long long)most);
    *times = count;
    if (opts->counted)
        *opts->counted += count;
    return NDP_OK;
}

/* Tells the range's calls which iteration this is. */
static ndp_status write_index(const ndp_list *list, int range, int64_t index, const ndp_call_opts *opts) {
    const ndp_operand *o = &list->indices[range];
    const ndp_device *d = opts->exec->device;
    if (o->base == NDP_NONE)
        return NDP_OK;
    void *at = (char *)opts->bases[o->base] + o->offset;
    if (d->host_memory) {
        *(int64_t *)at = index;
        return NDP_OK;
    }
    NDP_TRY(ndp_call_drain(opts)); /* the same memory is read on the device, and on the host's stack */
    NDP_TRY(d->copy(opts->queue, at, sizeof index, &index, sizeof index, sizeof index, 1));
    return ndp_call_drain(opts);
}

ndp_status ndp_list_run(const ndp_list *list, const ndp_call_opts *opts) {
    ndp_repeat now[NDP_MAX_REPEATS] = {{0}};
    ndp_repeats repeats = {now, list->repeats.n};
    for (int i = 0; i < repeats.n; i++)
        now[i] = list->repeats.items[i], now[i].counted = false;
    for (ndp_walk w = NDP_WALK_START; ndp_walk_next(&repeats, list->n, NDP_ALL_ITERATIONS, &w);) {
        ndp_repeat *r = w.range < repeats.n ? &now[w.range] : NULL;
        if (r && w.at == r->first && w.iteration == 0) {
            NDP_TRY(read_count(list, w.range, opts, &r->times));
            if (r->times == 0) { /* to its end */
                r->times = 1, w.at = r->first + r->n - 1;
                continue;
            }
        }
        if (r && w.at == r->first)
            NDP_TRY(write_index(list, w.range, w.iteration, opts));
        NDP_TRY(ndp_call_run(&list->calls[w.at], w.at, opts));
    }
    return NDP_OK;
}
