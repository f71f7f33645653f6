/* Measures in rounds of disjoint pairs (host_links.h). A round of all hosts at once shows what they share: two pairs
 * over one trunk get half of it each. */
#include "measure/host_links.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

ndp_status ndp_host_links_init(int n, ndp_host_links *out) {
    size_t hosts = (size_t)n;
    ndp_host_links l = {.n = n,
                        .racks = 1,
                        .together = calloc(hosts * hosts, sizeof *l.together),
                        .latency = calloc(hosts * hosts, sizeof *l.latency),
                        .alone = calloc(hosts, sizeof *l.alone),
                        .streams = calloc(hosts, sizeof *l.streams),
                        .rack_of = calloc(hosts, sizeof *l.rack_of)};
    if (!l.together || !l.latency || !l.alone || !l.streams || !l.rack_of) {
        ndp_host_links_release(&l);
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for the links of %d hosts", n);
    }
    *out = l;
    return NDP_OK;
}

void ndp_host_links_release(ndp_host_links *l) {
    free(l->together);
    free(l->latency);
    free(l->alone);
    free(l->streams);
    free(l->rack_of);
    *l = (ndp_host_links){0};
}

/* ---- rounds ---- */

enum { ALL_PAIRS = 16 }; /* hosts of which every pair is measured */

int ndp_host_rounds(int hosts) {
    int rounds = 0;
    if (hosts <= ALL_PAIRS)
        return hosts + hosts % 2 - 1;
    while (1 << rounds < hosts)
        rounds++;
    return rounds;
}

/* Few hosts: one stands still and the others go around a table, so that every pair meets once and all are busy. Many:
 * those whose numbers differ in one bit. */
int ndp_host_round_peer(int hosts, int round, int host) {
    int even = hosts + hosts % 2, still = even - 1, peer;
    if (hosts > ALL_PAIRS)
        peer = host ^ (1 << round);
    else if (host == still)
        peer = round;
    else if (host == round)
        peer = still;
    else
        peer = (2 * round - host + 2 * still) % still;
    return peer < hosts && peer != host ? peer : -1;
}

double ndp_host_links_nic(const ndp_host_links *l, int host) {
    /* What all ranks send is timed as a whole, so it is the most exact; one connection may not fill a NIC, and ranks
     * that are many for their cores may not either. */
    double alone = l->alone[host] > 1.15 * l->streams[host] ? l->alone[host] : l->streams[host], best = 0;
    for (int k = 0; k < l->n; k++)
        best = l->together[host * l->n + k] > best ? l->together[host * l->n + k] : best;
    return alone > 0 ? alone : best;
}

/* ---- measuring ---- */

typedef struct link_meter {
    ndp_comm *world;
    const ndp_world_hosts *hosts;
    ndp_probe_opts opts;
    ndp_probe *probes; /* of a round: one for each rank at most */
    int n;
    ndp_host_links *l;
} link_meter;

/* Rank number `k` on a host; -1: it has fewer. */
static int rank_on(const link_meter *m, int host, int k) {
    for (int r = 0; r < m->hosts->world; r++)
        if (m->hosts->of[r] == host && k-- == 0)
            return r;
    return -1;
}

static void add_pair(link_meter *m, int x, int y) {
    if (x >= 0 && y >= 0)
        m->probes[m->n++] = (ndp_probe){.a = x < y ? x : y, .b = x < y ? y : x};
}

static ndp_status measure(link_meter *m) {
    NDP_TRY(ndp_probes_run(m->world, m->probes, m->n, &m->opts));
    return ndp_probes_share(m->world, m->probes, m->n);
}

/* Every round of one rank a host, all pairs at once. */
static ndp_status measure_together(link_meter *m) {
    ndp_host_links *l = m->l;
    for (int round = 0; round < ndp_host_rounds(l->n); round++) {
        m->n = 0;
        for (int i = 0; i < l->n; i++)
            if (ndp_host_round_peer(l->n, round, i) > i)
                add_pair(m, rank_on(m, i, 0), rank_on(m, ndp_host_round_peer(l->n, round, i), 0));
        NDP_TRY(measure(m));
        for (int i = 0; i < m->n; i++) {
            const ndp_probe *p = &m->probes[i];
            int a = m->hosts->of[p->a], b = m->hosts->of[p->b];
            l->together[a * l->n + b] = p->to_b;
            l->together[b * l->n + a] = p->to_a;
            l->latency[a * l->n + b] = l->latency[b * l->n + a] = p->latency;
        }
    }
    return NDP_OK;
}

/* Every pair sends `bytes` from a to b at once: what the trunk carried until the last one was through. A pair that is
 * done early leaves its part to the others, so rates of single pairs would add up to more than there is. */
static ndp_status send_at_once(link_meter *m, int64_t bytes, double *seconds) {
    int rank = ndp_comm_rank(m->world);
    char *data = calloc(1, (size_t)bytes);
    ndp_work w;
    ndp_status st = NDP_MEMORY(data, "for a message of %lld bytes", (long long)bytes);
    if (st == NDP_OK)
        st = ndp_barrier(m->world);
    double start = ndp_now();
    for (int i = 0; i < m->n && st == NDP_OK; i++) {
        const ndp_probe *p = &m->probes[i];
        if (p->a != rank && p->b != rank)
            continue;
        st = p->a == rank ? ndp_send_begin(m->world, data, bytes, p->b, 2, &w)
                          : ndp_recv_begin(m->world, data, bytes, p->a, 2, &w);
        st = st == NDP_OK ? ndp_wait(&w) : st;
    }
    *seconds = ndp_now() - start;
    free(data);
    NDP_TRY(st);
    NDP_TRY(ndp_all_reduce_begin(m->world, seconds, 1, NDP_F64, NDP_MAX, &w));
    return ndp_wait(&w);
}

/* The host that a host has its best link to. */
static int best_peer(const ndp_host_links *l, int host) {
    int best = host ? 0 : 1;
    for (int k = 0; k < l->n; k++)
        if (k != host && l->together[host * l->n + k] > l->together[host * l->n + best])
            best = k;
    return best;
}

/* Bytes per second of all pairs together, from a to b, with messages that last about three times as long as single ones
 * at `rate`. The second time counts: the first uses up what passes at once. */
static ndp_status rate_at_once(link_meter *m, double rate, double *out) {
    double seconds, bytes = rate * 3 * m->opts.seconds / (m->n ? m->n : 1);
    bytes = bytes < 1 << 16 ? 1 << 16 : bytes > 64 << 20 ? 64 << 20 : bytes;
    NDP_TRY(send_at_once(m, (int64_t)bytes, &seconds));
    NDP_TRY(send_at_once(m, (int64_t)bytes, &seconds));
    *out = (double)(int64_t)bytes * m->n / seconds;
    return NDP_OK;
}

/* Each host's best link, one host after the other: by one rank, then by all that both hosts have. */
static ndp_status measure_alone(link_meter *m) {
    ndp_host_links *l = m->l;
    for (int i = 0; i < l->n && i < ALL_PAIRS; i++) {
        int peer = best_peer(l, i);
        m->n = 0;
        add_pair(m, rank_on(m, i, 0), rank_on(m, peer, 0));
        NDP_TRY(measure(m));
        l->alone[i] = m->hosts->of[m->probes[0].a] == i ? m->probes[0].to_b : m->probes[0].to_a;
        m->n = 0;
        for (int k = 0; rank_on(m, i, k) >= 0 && rank_on(m, peer, k) >= 0; k++)
            m->probes[m->n++] = (ndp_probe){.a = rank_on(m, i, k), .b = rank_on(m, peer, k)};
        if (m->n > 1)
            NDP_TRY(rate_at_once(m, l->alone[i], &l->streams[i]));
    }
    return NDP_OK;
}

/* Pairs of ranks of every host, all at once. */
static ndp_status measure_inside(link_meter *m) {
    ndp_host_links *l = m->l;
    m->n = 0;
    for (int i = 0; i < l->n; i++)
        for (int k = 0; rank_on(m, i, k + 1) >= 0; k += 2)
            add_pair(m, rank_on(m, i, k), rank_on(m, i, k + 1));
    NDP_TRY(measure(m));
    for (int i = 0; i < m->n; i++) {
        const ndp_probe *p = &m->probes[i];
        l->inside += (p->to_a + p->to_b) / 2 / m->n;
        l->inside_latency += p->latency / m->n;
    }
    return NDP_OK;
}

/* ---- the trunk ---- */

/* Host number k of a rack; -1: it has fewer. */
static int host_in(const ndp_host_links *l, int rack, int k) {
    for (int i = 0; i < l->n; i++)
        if (l->rack_of[i] == rack && k-- == 0)
            return i;
    return -1;
}

/* Hosts of the racks 0 and 1, of 2 and 3, ... send to each other, as many as both have. */
static ndp_status measure_trunk(link_meter *m) {
    ndp_host_links *l = m->l;
    double all, nic = 0;
    m->n = 0;
    for (int u = 0; u + 1 < l->racks; u += 2)
        for (int k = 0; host_in(l, u, k) >= 0 && host_in(l, u + 1, k) >= 0; k++) {
            int from = host_in(l, u, k);
            m->probes[m->n++] = (ndp_probe){.a = rank_on(m, from, 0), .b = rank_on(m, host_in(l, u + 1, k), 0)};
            nic += l->together[from * l->n + host_in(l, u + 1, k)];
        }
    NDP_TRY(rate_at_once(m, nic, &all));
    l->trunk = all / (l->racks / 2);
    return NDP_OK;
}

static ndp_status measure_all(link_meter *m) {
    NDP_TRY(measure_inside(m));
    if (m->l->n == 1)
        return NDP_OK;
    NDP_TRY(measure_together(m));
    NDP_TRY(measure_alone(m));
    NDP_TRY(ndp_host_links_group(m->l));
    return m->l->racks > 1 ? measure_trunk(m) : NDP_OK;
}

ndp_status ndp_host_links_measure(ndp_comm *world, const ndp_world_hosts *hosts, double seconds, ndp_host_links *out) {
    ndp_host_links l;
    link_meter m = {.world = world,
                    .hosts = hosts,
                    .opts = {.seconds = seconds, .most = 64 << 20, .repeats = 3},
                    .probes = calloc((size_t)hosts->world + 1, sizeof *m.probes),
                    .l = &l};
    NDP_CHECK_MEMORY(m.probes, "to measure the links of %d ranks", hosts->world);
    ndp_status st = ndp_host_links_init(hosts->n, &l);
    if (st == NDP_OK) {
        st = measure_all(&m);
        if (st != NDP_OK)
            ndp_host_links_release(&l);
    }
    free(m.probes);
    if (st == NDP_OK)
        *out = l;
    return st;
}
