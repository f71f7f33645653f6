/* Running unit lists by themselves (lone_lists.h). */
#include "step/lone_lists.h"

#include <math.h>
#include <stdlib.h>

/* Waits of a channel have the order of its begins. */
static bool match_waits(const ndp_lone_list *l) {
    int begun[NDP_CHANNELS] = {0}, waited[NDP_CHANNELS] = {0}, next[NDP_CHANNELS] = {0};
    bool same = true;
    for (int i = 0; i < l->n && same; i++) {
        const ndp_call *c = l->calls[i].call;
        if (c->kind == NDP_CALL_KERNEL)
            continue;
        if (c->kind == NDP_CALL_BEGIN) {
            begun[c->channel]++;
            continue;
        }
        int *at = &next[c->channel];
        same = waited[c->channel]++ < begun[c->channel];
        while (same && (l->calls[*at].call->kind != NDP_CALL_BEGIN || l->calls[*at].call->channel != c->channel))
            ++*at;
        l->calls[i].begin = (*at)++;
    }
    for (int k = 0; k < NDP_CHANNELS; k++)
        same = same && waited[k] == begun[k];
    return same;
}

ndp_status ndp_lone_list_make(const ndp_list *list, const ndp_lone_costs *costs, ndp_lone_list *out) {
    size_t n = (size_t)ndp_repeats_executed(&list->repeats, list->n), begins = 0;
    *out = (ndp_lone_list){.calls = calloc(n + 1, sizeof *out->calls), .beside = costs->beside};
    for (int i = 0; i < list->n; i++)
        begins += list->calls[i].kind == NDP_CALL_BEGIN ? (size_t)ndp_repeats_times(&list->repeats, i) : 0;
    out->busy = calloc(begins + 1, sizeof *out->busy);
    NDP_CHECK_MEMORY(out->calls && out->busy, "for a list of %zu calls", n);
    int b = 0;
    for (ndp_walk w = NDP_WALK_START; ndp_walk_next(&list->repeats, list->n, NDP_USUAL_ITERATIONS, &w);) {
        ndp_lone_call *c = &out->calls[out->n++];
        c->call = &list->calls[w.at];
        c->seconds = c->call->kind == NDP_CALL_WAIT ? 0 : costs->seconds(costs->user, c->call);
        if (c->call->kind != NDP_CALL_BEGIN)
            continue;
        c->begin = b++;
        if (costs->links)
            costs->links(costs->user, c->call, out->busy[c->begin]);
    }
    return match_waits(out) ? NDP_OK : NDP_FAIL(NDP_EBUG, "a list waits for other operations than it begins");
}

void ndp_lone_list_release(ndp_lone_list *l) {
    free(l->calls);
    free(l->busy);
    *l = (ndp_lone_list){0};
}

/* A begin: the operation starts when those before it on its channel are over, and its links have passed what was begun
 * before it, each of which it keeps busy from its turn there (simulate_operations.c). */
static double operation_end(const ndp_lone_call *c, const double busy[NDP_BUSY_LINKS], ndp_streams *t) {
    double begun = fmax(t->now, t->over[c->call->channel]), start = begun;
    for (int k = 0; k < NDP_BUSY_LINKS; k++)
        start = busy[k] > 0 && t->free[k] > start ? t->free[k] : start;
    for (int k = 0; k < NDP_BUSY_LINKS; k++)
        if (busy[k] > 0)
            t->free[k] = fmax(t->free[k], begun) + busy[k];
    double end = t->over[c->call->channel] = start + c->seconds;
    t->moves = fmax(t->moves, end);
    return end;
}

int ndp_lone_list_run(ndp_lone_list *l, int at, double until, bool then, bool told, ndp_streams *t) {
    for (; at < l->n && (t->now < until || (then && t->now == until)); at++) {
        ndp_lone_call *c = &l->calls[at];
        double start = t->now;
        if (c->call->kind == NDP_CALL_KERNEL)
            t->now = ndp_kernel_end(t, c->seconds, l->beside);
        else if (c->call->kind == NDP_CALL_BEGIN)
            c->ends = operation_end(c, l->busy[c->begin], t);
        else
            t->now = fmax(t->now, l->calls[c->begin].ends);
        c->spent += told ? t->now - start : 0;
    }
    return at;
}
