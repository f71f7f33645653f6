/* Times collectives of a few kinds of groups at sizes that last about as long on any links, and finds the shares of the
 * links that they reach (group_timing.h). Who calls it: topology.c. */
#include "measure/group_timing.h"

#include "base/clock.h"
#include "measure/median.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One kind of group on one communicator. */
typedef struct group_clock {
    ndp_transport *transport;
    ndp_comm *world, *comm;
    ndp_group group;
    ndp_group_links links;
    int nodes; /* that the group spans */
    ndp_group_timings *out;
} group_clock;

static const struct {
    ndp_work_kind kind;
    const char *name;
    int passes; /* of the parts */
} timed[] = {{NDP_WORK_ALL_GATHER, "all_gather", 1},
             {NDP_WORK_REDUCE_SCATTER, "reduce_scatter", 1},
             {NDP_WORK_ALL_REDUCE, "all_reduce", 2}};

static ndp_status run_once(ndp_comm *c, ndp_work_kind kind, const float *in, float *out, int64_t part) {
    ndp_work w;
    if (kind == NDP_WORK_ALL_GATHER)
        NDP_TRY(ndp_all_gather_begin(c, in, out, part, NDP_F32, &w));
    else if (kind == NDP_WORK_REDUCE_SCATTER)
        NDP_TRY(ndp_reduce_scatter_begin(c, in, out, part, NDP_F32, false, &w));
    else
        NDP_TRY(ndp_all_reduce_begin(c, out, part * ndp_comm_size(c), NDP_F32, NDP_SUM, &w));
    return ndp_wait(&w);
}

/* The longest of all ranks, of the fastest run. Short ones are repeated, since a rank without a core for a while costs
 * many of them. */
static ndp_status time_runs(const group_clock *g, ndp_work_kind kind, const float *in, float *out, int64_t part,
                            double *seconds) {
    enum { RUNS = 4, MOST_RUNS = 32 }; /* the first one fills what a switch lets pass at once */
    double all = 0;
    *seconds = INFINITY;
    for (int i = 0; i < RUNS || (i < MOST_RUNS && all < 0.02); i++) {
        ndp_work w;
        NDP_TRY(ndp_barrier(g->world));
        double start = ndp_now();
        NDP_TRY(run_once(g->comm, kind, in, out, part));
        double taken = ndp_now() - start;
        NDP_TRY(ndp_all_reduce_begin(g->world, &taken, 1, NDP_F64, NDP_MAX, &w));
        NDP_TRY(ndp_wait(&w));
        all += taken;
        *seconds = i > 0 && taken < *seconds ? taken : *seconds;
    }
    return NDP_OK;
}

/* On memory as a step has it, which the ranks of a node work on in place; other memory is copied, two to five times as
 * slowly. */
static ndp_status time_size(const group_clock *g, int op, int64_t part) {
    char bytes[16];
    int n = g->group.count;
    const size_t size = (size_t)(part * n) * sizeof(float);
    void *memory;
    ndp_window *window;
    double sent = (double)timed[op].passes * (double)part * sizeof(float) * (n - 1);
    ndp_group_timing *t = &g->out->of[g->out->n];
    *t = (ndp_group_timing){.crosses = g->nodes > 1, .bytes = sent, .latency = g->links.latency, .rate = g->links.rate};
    snprintf(t->name, sizeof t->name, "%s of %d ranks on %d node%s, %s a rank", timed[op].name, n, g->nodes,
             g->nodes == 1 ? "" : "s", ndp_human_bytes(sent, bytes));
    const ndp_memory_source source = ndp_transport_memory(g->transport);
    NDP_TRY(source.map(source.user, 2 * size, &memory));
    ndp_status st = ndp_window_register(g->world, memory, 2 * size, &window);
    if (st == NDP_OK) {
        float *in = ndp_window_data(window), *out = in + part * n;
        st = time_runs(g, timed[op].kind, in, out, part, &t->seconds);
        ndp_window_destroy(window);
    }
    g->out->n += st == NDP_OK;
    source.unmap(source.user, memory, 2 * size);
    return st;
}

static ndp_status time_group(const group_clock *g) {
    static const double seconds[NDP_TIMED_SIZES] = {0.001, 0.004, 0.016, 0.064};
    for (int op = 0; op < NDP_COUNT(timed); op++)
        for (int i = 0; i < NDP_TIMED_SIZES && g->out->n < NDP_TIMED_MOST; i++) {
            double part = seconds[i] * g->links.rate / (timed[op].passes * (g->group.count - 1)) / sizeof(float);
            const double most = 16 << 20;
            part = part < 16 ? 16 : part > most ? most : part;
            NDP_TRY(time_size(g, op, (int64_t)part));
        }
    return NDP_OK;
}

/* Times the groups of this shape, all at once. */
static ndp_status time_shape(ndp_transport *t, ndp_comm *world, const ndp_cluster *c, const ndp_rank_map *m, int stride,
                             int count, ndp_group_timings *out) {
    group_clock g = {.transport = t, .world = world, .out = out};
    ndp_group *groups;
    int n, rank = ndp_comm_rank(world), block = rank / (stride * count);
    NDP_TRY(ndp_groups_alike(m->world, stride, count, &groups, &n));
    g.group = (ndp_group){block * stride * count + rank % stride, stride, count, rank / stride % count};
    /* Rank 0's stands for all, so that all ranks take the same sizes. */
    ndp_status st = ndp_cluster_links(c, m, groups[0], groups, n, NDP_SENDS_DIRECT, &g.links);
    for (int i = 0; i < count; i++)
        g.nodes += i == 0 || m->node[i * stride] != m->node[(i - 1) * stride];
    free(groups);
    if (st == NDP_OK && g.links.rate > 0)
        st = ndp_comm_create(t, g.group, "timing", &g.comm);
    if (st != NDP_OK || !g.comm)
        return st;
    st = time_group(&g);
    ndp_comm_destroy(g.comm);
    return st;
}

ndp_status ndp_group_timings_measure(ndp_transport *t, ndp_comm *world, const ndp_cluster *c, const ndp_rank_map *m,
                                     ndp_group_timings *out) {
    int block = ndp_rank_map_block(m);
    *out = (ndp_group_timings){0};
    if (block > 1 && block < m->world)
        NDP_TRY(time_shape(t, world, c, m, 1, block, out));
    if (block > 1 && block < m->world)
        NDP_TRY(time_shape(t, world, c, m, block, m->world / block, out));
    return m->world > 1 ? time_shape(t, world, c, m, 1, m->world, out) : NDP_OK;
}

/* ---- the fit ---- */

/* Timings come in runs of NDP_TIMED_SIZES, the smallest size first. */
static double share_of(const ndp_group_timings *t, bool crosses) {
    double shares[NDP_TIMED_MOST];
    int n = 0;
    for (int i = 0; i < t->n; i++) {
        const ndp_group_timing *g = &t->of[i];
        double seconds = g->seconds - g->latency;
        if (g->crosses == crosses && i % NDP_TIMED_SIZES >= NDP_TIMED_SIZES / 2 && seconds > 0)
            shares[n++] = g->bytes / g->rate / seconds;
    }
    return n ? ndp_median(shares, n) : 1;
}

void ndp_group_timings_fit(const ndp_group_timings *t, ndp_cluster *c, ndp_str *misses) {
    double links = share_of(t, false), faster = fmax(links, 1);
    c->links.bandwidth *= faster, c->facts.links.bandwidth *= faster;
    c->efficiency.links = links / faster;
    c->efficiency.nics = fmin(share_of(t, true), 1);
    for (int i = 0; i < t->n; i++) {
        const ndp_group_timing *g = &t->of[i];
        double fit = g->latency + g->bytes / (g->rate * (g->crosses ? c->efficiency.nics : links));
        if (fabs(fit / g->seconds - 1) > 0.1)
            ndp_str_addf(misses, "%s: %.3g ms, by the fit %.3g (%+.0f%%)\n", g->name, g->seconds * 1e3, fit * 1e3,
                         100 * (fit / g->seconds - 1));
    }
}
