/* ndp_place_ranks: which host each rank of a job runs on, so that the axes with the most traffic stay innermost in the
 * tree of links (cluster/best_map.h). What ranks send follows from their programs, as it does in a plan; those of every
 * rank on a node of its own, since which of them share memory depends on the places. */
#include "base/text.h"
#include "cluster/best_map.h"
#include "launch/launch.h"
#include "plan/cluster_plan.h"

#include <stdlib.h>
#include <string.h>

typedef struct placing {
    ndp_host_list hosts;
    int *node_of_host;     /* of the cluster */
    ndp_cluster_plan plan; /* its map: the hosts' own order */
    ndp_rank_map best;
    ndp_map_cost given_cost, best_cost;
} placing;

/* ---- the cluster ---- */

/* Hosts of which nothing is known but their slots: one level of links. */
static ndp_status take_flat(placing *p) {
    ndp_cluster *c = &p->plan.cluster;
    *c = (ndp_cluster){.nodes = p->hosts.n,
                       .name = strdup("hosts"),
                       .device = strdup("cpu"),
                       .links = {strdup("host"), 1e10, 1e-6, NDP_LINK_SWITCH},
                       .nics = {strdup("network"), 1, 1e9, 1e-5},
                       .efficiency = {1, 1, 1, 1, 1},
                       .devices_of = calloc((size_t)p->hosts.n, sizeof *c->devices_of)};
    for (int i = 0; i < p->hosts.n; i++)
        p->node_of_host[i] = i;
    return NDP_MEMORY(c->name && c->device && c->links.kind && c->nics.kind && c->devices_of, "for %d hosts",
                      p->hosts.n);
}

/* By its whole name, else up to the first dot: a host may call itself node-1 that others call node-1.cluster. */
static int find_node(const ndp_cluster *c, const char *host) {
    for (int i = 0; i < c->hosts.n; i++)
        if (strcmp(c->hosts.items[i], host) == 0)
            return i;
    for (int i = 0; i < c->hosts.n; i++) {
        size_t n = strcspn(c->hosts.items[i], ".");
        if (n == strcspn(host, ".") && strncmp(c->hosts.items[i], host, n) == 0)
            return i;
    }
    return -1;
}

/* Each host's node: by its name, or without names by its place in the list. */
static ndp_status find_nodes(placing *p, const char *path) {
    const ndp_cluster *c = &p->plan.cluster;
    for (int i = 0; i < p->hosts.n; i++) {
        const ndp_host *h = &p->hosts.items[i];
        p->node_of_host[i] = c->hosts.n ? find_node(c, h->name) : i;
        NDP_CHECK(p->node_of_host[i] >= 0 && p->node_of_host[i] < c->nodes,
                  "%s: the host '%s' is not in it: add it to `hosts` and `nodes`, or measure again with `ndparallel "
                  "topology`",
                  path, h->name);
    }
    return NDP_OK;
}

/* Nodes have as many places as the list gives their hosts slots; those without a host have none. */
static ndp_status take_slots(placing *p) {
    ndp_cluster *c = &p->plan.cluster;
    memset(c->devices_of, 0, (size_t)c->nodes * sizeof *c->devices_of);
    for (int i = 0; i < p->hosts.n; i++) {
        const ndp_host *h = &p->hosts.items[i];
        NDP_CHECK(h->stated, "--placement best has to know how many ranks '%s' takes: write slots=N in its line",
                  h->name);
        c->devices_of[p->node_of_host[i]] += h->slots;
    }
    NDP_CHECK(ndp_cluster_devices(c) >= p->plan.job->world, "%d ranks, but the %d hosts have %d slots",
              p->plan.job->world, p->hosts.n, ndp_cluster_devices(c));
    return NDP_OK;
}

/* The map that mpirun would make: ranks fill the hosts in their order. */
static ndp_status take_given(placing *p) {
    int world = p->plan.job->world, *node = calloc((size_t)world, sizeof *node);
    NDP_CHECK_MEMORY(node, "for a map of %d ranks", world);
    for (int i = 0, r = 0; i < p->hosts.n; i++)
        for (int k = 0; k < p->hosts.items[i].slots && r < world; k++)
            node[r++] = p->node_of_host[i];
    ndp_status st = ndp_rank_map_take(&p->plan.cluster, world, node, &p->plan.map);
    free(node);
    return st;
}

static ndp_status open_cluster(placing *p, const char *path) {
    p->node_of_host = calloc((size_t)p->hosts.n, sizeof *p->node_of_host);
    NDP_CHECK_MEMORY(p->node_of_host, "for %d hosts", p->hosts.n);
    if (path) {
        NDP_TRY(ndp_cluster_read(path, &p->plan.cluster));
        NDP_TRY(find_nodes(p, path));
    } else
        NDP_TRY(take_flat(p));
    NDP_TRY(take_slots(p));
    return take_given(p);
}

/* ---- the search ---- */

static ndp_status search(placing *p) {
    ndp_dry_run d;
    ndp_model m;
    ndp_flows flows;
    const ndp_job *j = p->plan.job;
    NDP_TRY(ndp_dry_run_init(&d, j, 1, 0));
    p->plan.rings = !d.device.host_memory && !d.exec.staged;
    NDP_TRY(ndp_model_build(&j->spec, &j->model, &m));
    ndp_status st = ndp_cluster_plan_flows(&p->plan, &d, &m, &flows);
    ndp_model_release(&m);
    NDP_TRY(st);
    st = ndp_best_map(&p->plan.cluster, &j->layout, &flows, &p->plan.map, &p->best);
    if (st == NDP_OK)
        st = ndp_map_cost_of(&flows, &p->plan.cluster, &p->plan.map, &p->given_cost);
    if (st == NDP_OK)
        st = ndp_map_cost_of(&flows, &p->plan.cluster, &p->best, &p->best_cost);
    ndp_flows_release(&flows);
    return st;
}

/* ---- the result ---- */

static const char *host_of(const placing *p, int rank) {
    for (int i = 0; i < p->hosts.n; i++)
        if (p->node_of_host[i] == p->best.node[rank])
            return p->hosts.items[i].name;
    return "?";
}

/* "node-1: ranks 0, 2" for each host, and what each level of links carries. */
static void describe(const placing *p, ndp_str *out) {
    char name[64], bytes[2][16];
    ndp_str_add(out, "placement:");
    for (int i = 0; i < p->hosts.n; i++) {
        int n = 0;
        ndp_str_addf(out, "%s %s", i ? ";" : "", p->hosts.items[i].name);
        for (int r = 0; r < p->best.world; r++)
            if (p->best.node[r] == p->node_of_host[i])
                ndp_str_addf(out, "%s%d", n++ ? "," : " ", r);
    }
    ndp_str_add(out, "\n");
    for (int level = p->best_cost.levels - 1; level >= NDP_LINK_NICS; level--)
        ndp_str_addf(out, "placement: %s carry %s a step, in the hosts' own order %s\n",
                     ndp_cluster_level_name(&p->plan.cluster, level, name, sizeof name),
                     ndp_human_bytes(p->best_cost.bytes[level], bytes[0]),
                     ndp_human_bytes(p->given_cost.bytes[level], bytes[1]));
}

static ndp_status take_result(const placing *p, char ***hosts, char **text) {
    int world = p->best.world;
    char **names = calloc((size_t)world + 1, sizeof *names);
    ndp_str words = {0};
    bool ok = names;
    for (int r = 0; r < world && ok; r++)
        ok = (names[r] = strdup(host_of(p, r)));
    describe(p, &words);
    char *all = ndp_str_detach(&words);
    if (ok && all) {
        *hosts = names;
        *text = all;
        return NDP_OK;
    }
    ndp_rank_hosts_free(names);
    free(all);
    return NDP_FAIL(NDP_ENOMEM, "not enough memory for the hosts of %d ranks", world);
}

void ndp_rank_hosts_free(char **hosts) {
    for (int i = 0; hosts && hosts[i]; i++)
        free(hosts[i]);
    free(hosts);
}

static ndp_status place(placing *p, const char *hostfile, const char *cluster, char ***hosts, char **text) {
    NDP_TRY(ndp_launch_hosts(hostfile, &p->hosts));
    NDP_CHECK(p->hosts.n > 0, "--placement best chooses among several hosts: give --hostfile, or run in an allocation");
    NDP_TRY(open_cluster(p, cluster));
    NDP_TRY(search(p));
    return take_result(p, hosts, text);
}

ndp_status ndp_place_ranks(const ndp_config *c, const char *hostfile, const char *cluster, char ***hosts, char **text) {
    NDP_NOT_NULL(c, hosts, text);
    ndp_job j;
    NDP_TRY(ndp_job_init_planned(c, 0, false, &j));
    placing p = {.plan = {.job = &j, .facts = {j.spec.layout.kv_heads, j.ties}}};
    ndp_status st = place(&p, hostfile, cluster, hosts, text);
    ndp_rank_map_release(&p.best);
    ndp_cluster_plan_release(&p.plan);
    ndp_host_list_release(&p.hosts);
    free(p.node_of_host);
    ndp_job_release(&j);
    return st;
}
