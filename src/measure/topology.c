/* ndp_topology: measures the nodes, devices and links of a world, and makes a cluster of that.
 *
 *   nodes (hwloc) -> devices, all ranks at once -> links between hosts -> racks -> the cluster -> collectives -> its
 *   efficiency
 *
 * Each rank knows all results that the cluster is made of, so all make the same one, which the collectives are compared
 * with. */
#include "base/clock.h"
#include "cluster/built_in.h"
#include "measure/group_timing.h"
#include "measure/host_links.h"
#include "measure/measure_device.h"
#include "measure/median.h"
#include "measure/node_tree.h"
#include "measure/topology_text.h"
#include "ops/devices.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- short collectives ---- */

static ndp_status gather(ndp_comm *world, const void *mine, void *all, size_t bytes) {
    ndp_work w;
    NDP_TRY(ndp_all_gather_begin(world, mine, all, (int64_t)bytes, NDP_U8, &w));
    return ndp_wait(&w);
}

static ndp_status share(ndp_comm *world, void *data, size_t bytes) {
    ndp_work w;
    NDP_TRY(ndp_broadcast_begin(world, data, (int64_t)bytes, 0, &w));
    return ndp_wait(&w);
}

/* ---- nodes and devices ---- */

static int ranks_of(const ndp_world_hosts *h, int host) {
    int n = 0;
    for (int r = 0; r < h->world; r++)
        n += h->of[r] == host;
    return n;
}

static ndp_status measure_rank(const ndp_topology_run *t, ndp_rank_facts *out, ndp_str *misses) {
    ndp_node_tree tree;
    const ndp_device *device;
    ndp_timings timings;
    NDP_TRY(ndp_node_tree_read(NULL, &tree));
    for (int i = 0; i < tree.n_sockets; i++)
        out->cores += tree.sockets[i].cores;
    out->sockets = tree.n_sockets;
    out->gpus = tree.n_gpus;
    out->nics = tree.n_nics;
    out->memory_bytes = tree.memory_bytes;
    out->efficiency = (ndp_efficiency){1, 1, 1, 1, 1};
    if (t->opts->quick)
        return NDP_OK;
    int rank = ndp_comm_rank(t->world), place = 0, ranks = ranks_of(&t->hosts, t->hosts.of[rank]);
    for (int r = 0; r < rank; r++)
        place += t->hosts.of[r] == t->hosts.of[rank];
    NDP_TRY(ndp_device_find(t->opts->device ? t->opts->device : "cpu", &device));
    ndp_exec exec = ndp_exec_of(device, ndp_device_threads(ranks), 0);
    omp_set_num_threads(exec.threads);
    const ndp_device_opts opts = {.local_rank = place, .node_ranks = ranks};
    NDP_TRY(ndp_measure_device(&exec, &opts, NDP_MEASURE_SECONDS, &timings));
    memcpy(out->full_name, timings.full_name, sizeof out->full_name);
    return ndp_fit_device(&timings, &out->device, &out->efficiency, misses);
}

/* All devices work at once, as in a step; rank 0's facts become the cluster's. */
static ndp_status measure_devices(ndp_topology_run *t) {
    ndp_rank_facts mine = {0}, *all = calloc((size_t)t->hosts.world, sizeof *all);
    NDP_CHECK_MEMORY(all, "for the devices of %d ranks", t->hosts.world);
    ndp_status st = ndp_barrier(t->world);
    if (st == NDP_OK) {
        mine.st = measure_rank(t, &mine, &t->device_misses);
        st = gather(t->world, &mine, all, sizeof mine);
    }
    for (int r = 0; r < t->hosts.world && st == NDP_OK; r++)
        if (all[r].st != NDP_OK)
            st = r == ndp_comm_rank(t->world) ? all[r].st
                                              : NDP_FAIL(all[r].st, "rank %d: its device was not measured", r);
    for (int r = 0; r < t->hosts.world && st == NDP_OK; r++) {
        t->rates[r] = all[r].device.flops[NDP_RATE_FP32];
        t->unlike |= all[r].cores != all[0].cores || all[r].gpus != all[0].gpus || all[r].nics != all[0].nics;
    }
    if (st == NDP_OK)
        t->first = all[0];
    free(all);
    return st;
}

/* ---- the cluster ---- */

/* Racks in the order of their size, the largest first: the last one of a level may be smaller. */
static void order_nodes(ndp_topology_run *t) {
    int sizes[NDP_TOPOLOGY_HOSTS] = {0}, done = 0;
    const ndp_host_links *l = &t->links;
    for (int i = 0; i < l->n; i++)
        sizes[l->rack_of[i]]++;
    for (int turn = 0; turn < l->racks; turn++) {
        int rack = 0;
        for (int k = 1; k < l->racks; k++)
            rack = sizes[k] > sizes[rack] ? k : rack;
        t->rack_size = turn == 0 ? sizes[rack] : t->rack_size;
        for (int i = 0; i < l->n; i++)
            if (l->rack_of[i] == rack)
                t->node_of_host[i] = done++;
        sizes[rack] = 0;
    }
}

double ndp_topology_nic(const ndp_host_links *l) {
    double nics[NDP_TOPOLOGY_HOSTS];
    for (int i = 0; i < l->n; i++)
        nics[i] = ndp_host_links_nic(l, i);
    return ndp_median(nics, l->n);
}

static double best_latency(const ndp_host_links *l) {
    double best = INFINITY;
    for (int i = 0; i < l->n * l->n; i++)
        best = l->latency[i] > 0 && l->latency[i] < best ? l->latency[i] : best;
    return isfinite(best) ? best : 0;
}

/* One device without peers on its node, or one node: what nothing was measured of is what one device can copy. */
static double known_or(double measured, double otherwise) { return measured > 0 ? measured : otherwise; }

static void set_links(ndp_topology_run *t) {
    ndp_cluster *c = &t->cluster;
    const ndp_host_links *l = &t->links;
    double memory = known_or(t->first.device.memory_bandwidth / 4, 1e9);
    c->links = (ndp_link_facts){strdup(t->first.gpus ? "host" : "memory"), known_or(l->inside, memory),
                                known_or(l->inside_latency, 1e-6), NDP_LINK_SWITCH};
    int nics = t->first.nics > 0 ? t->first.nics : 1;
    c->nics = (ndp_nic_facts){strdup("network"), nics, known_or(ndp_topology_nic(l), memory) / nics,
                              known_or(best_latency(l), 50e-6)};
    if (l->racks == 1)
        return;
    double rack = ndp_topology_nic(l) * t->rack_size;
    c->levels = 2;
    c->network[0] = (ndp_network_level){strdup("rack"), t->rack_size, 1};
    c->network[1] = (ndp_network_level){strdup("core"), l->racks, rack > l->trunk ? rack / l->trunk : 1};
}

static ndp_status set_nodes(ndp_topology_run *t) {
    ndp_cluster *c = &t->cluster;
    c->nodes = t->hosts.n;
    c->devices_of = calloc((size_t)t->hosts.n, sizeof *c->devices_of);
    NDP_CHECK_MEMORY(c->devices_of, "for %d nodes", t->hosts.n);
    for (int node = 0; node < t->hosts.n; node++)
        for (int i = 0; i < t->hosts.n; i++)
            if (t->node_of_host[i] == node) {
                NDP_TRY(ndp_strings_add(&c->hosts, t->hosts.names[i]));
                c->devices_of[node] = ranks_of(&t->hosts, i);
            }
    return NDP_OK;
}

/* Names, numbers and date; rank 0's date is that of all. */
static ndp_status make_cluster(ndp_topology_run *t) {
    ndp_cluster *c = &t->cluster;
    char date[32] = "";
    time_t now = time(NULL);
    struct tm day;
    strftime(date, sizeof date, "%Y-%m-%d", localtime_r(&now, &day));
    NDP_TRY(share(t->world, date, sizeof date));
    order_nodes(t);
    NDP_TRY(set_nodes(t));
    set_links(t);
    c->name = strdup("measured");
    c->device = strdup(t->opts->device ? t->opts->device : "cpu");
    c->like = t->opts->quick ? strdup("cpu") : NULL; /* whose numbers stand where none are measured */
    c->built_in = t->opts->quick;
    ndp_device_facts facts = t->opts->quick ? *ndp_built_in_device("cpu") : t->first.device;
    if (!t->opts->quick) {
        facts.links = c->links;
        facts.nics = c->nics;
        facts.full_name = *t->first.full_name ? t->first.full_name : NULL;
    }
    NDP_TRY(ndp_device_facts_copy(&facts, &c->facts));
    c->efficiency = t->first.efficiency;
    c->measured_on = strdup(date);
    c->measured_by = strdup("ndparallel " NDP_VERSION);
    ndp_cluster_round(c);
    return NDP_MEMORY(c->name && c->device && (c->like || !c->built_in) && c->links.kind && c->nics.kind &&
                          c->measured_on && c->measured_by,
                      "for a cluster");
}

/* What a node has of the device's own is what was measured. */
static ndp_status time_groups(ndp_topology_run *t) {
    ndp_rank_map map;
    int *node = calloc((size_t)t->hosts.world, sizeof *node);
    NDP_CHECK_MEMORY(node, "for a map of %d ranks", t->hosts.world);
    for (int r = 0; r < t->hosts.world; r++)
        node[r] = t->node_of_host[t->hosts.of[r]];
    ndp_status st = ndp_rank_map_take(&t->cluster, t->hosts.world, node, &map);
    free(node);
    NDP_TRY(st);
    st = ndp_group_timings_measure(t->transport, t->world, &t->cluster, &map, &t->groups);
    ndp_rank_map_release(&map);
    if (st == NDP_OK)
        ndp_group_timings_fit(&t->groups, &t->cluster, &t->group_misses);
    ndp_cluster_round(&t->cluster);
    return st;
}

/* ---- the whole ---- */

static void say(const ndp_topology_run *t, const char *line) {
    if (ndp_comm_rank(t->world) == 0 && t->opts->say)
        t->opts->say(t->opts->user, line);
}

static ndp_status measure_all(ndp_topology_run *t) {
    NDP_TRY(ndp_world_hosts_read(t->world, &t->hosts));
    NDP_CHECK(t->hosts.n <= NDP_TOPOLOGY_HOSTS, "%d hosts: a topology has at most %d", t->hosts.n, NDP_TOPOLOGY_HOSTS);
    t->rates = calloc((size_t)t->hosts.world, sizeof *t->rates);
    t->node_of_host = calloc((size_t)t->hosts.n, sizeof *t->node_of_host);
    NDP_CHECK_MEMORY(t->rates && t->node_of_host, "for %d ranks", t->hosts.world);
    say(t, t->opts->quick ? "reading the nodes" : "measuring the devices");
    NDP_TRY(measure_devices(t));
    say(t, "measuring the links");
    NDP_TRY(ndp_host_links_measure(t->world, &t->hosts, 0.06, &t->links));
    NDP_TRY(make_cluster(t));
    if (t->opts->quick)
        return NDP_OK;
    say(t, "timing collectives");
    return time_groups(t);
}

static void run_release(ndp_topology_run *t) {
    ndp_str_release(&t->device_misses);
    ndp_str_release(&t->group_misses);
    ndp_host_links_release(&t->links);
    ndp_world_hosts_release(&t->hosts);
    ndp_cluster_release(&t->cluster);
    free(t->rates);
    free(t->node_of_host);
}

static ndp_status write_cluster(const ndp_topology_run *t) {
    ndp_str file = {0};
    ndp_cluster_write(&t->cluster, &file);
    ndp_status st = file.failed ? NDP_FAIL(NDP_ENOMEM, "not enough memory for a cluster.yaml")
                                : ndp_file_write_atomic(t->opts->output, file.data, file.length);
    ndp_str_release(&file);
    return st;
}

static ndp_status finish(ndp_topology_run *t, double start, char **text) {
    ndp_str words = {0};
    t->seconds = ndp_now() - start;
    if (t->opts->output && ndp_comm_rank(t->world) == 0)
        NDP_TRY(write_cluster(t));
    (t->opts->json ? ndp_topology_json : ndp_topology_describe)(t, &words);
    *text = ndp_str_detach(&words);
    return NDP_MEMORY(*text, "for a text");
}

/* Rank 0 writes the file. */
static ndp_status check_output(const ndp_topology_run *t) {
    return t->opts->output && ndp_comm_rank(t->world) == 0 ? ndp_output_check(t->opts->output) : NDP_OK;
}

ndp_status ndp_topology(ndp_world *w, const ndp_topology_opts *o, char **text) {
    NDP_NOT_NULL(w, o, text);
    ndp_topology_run t = {.transport = w, .opts = o};
    double start = ndp_now();
    ndp_group all = {0, 1, ndp_transport_world(w), ndp_transport_rank(w)};
    NDP_TRY(ndp_comm_create(w, all, "topology", &t.world));
    ndp_status st = check_output(&t);
    if (st == NDP_OK)
        st = measure_all(&t);
    if (st == NDP_OK)
        st = finish(&t, start, text);
    run_release(&t);
    ndp_comm_destroy(t.world);
    return st;
}
