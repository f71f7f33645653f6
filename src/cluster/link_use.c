/* Which links a group's data cross, and what it has of them (cluster.h).
 *
 * Every level is a list of links with capacities. For each byte that every rank sends, all groups of the kind together
 * put a load on each link (`all`), and the group in question a part of that (`own`). A link passes the load in
 * all / capacity seconds, and the one that takes longest among those that the group uses is the level's. */
#include "cluster/cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct link_load {
    const ndp_cluster *c;
    const ndp_rank_map *m;
    ndp_send_pattern pattern;
    int level, links;
    int *unit_of;        /* by rank: its unit of this level; level 0: of nodes, since data stay inside one */
    int *in_unit;        /* by unit: members of the group that is being added */
    int *senders;        /* by node: ranks whose own data leave it, or who take part in rings that do */
    int *first_device;   /* by node: its first device, of all devices of the cluster */
    double *all, *own;   /* by link */
    const double *bytes; /* by rank, what it sends; NULL: 1 */
    void *memory;
} link_load;

static int rank_of(const ndp_group *g, int member) { return g->base + member * g->stride; }

/* Nodes of a unit of network[i]; i < 0: 1. */
static int64_t nodes_of_unit(const ndp_cluster *c, int i) {
    int64_t nodes = 1;
    for (int k = 0; k <= i && nodes < c->nodes; k++)
        nodes *= c->network[k].members;
    return nodes;
}

int ndp_cluster_levels(const ndp_cluster *c) {
    int levels = NDP_LINK_UPLINKS;
    for (int i = 0; i < c->levels && nodes_of_unit(c, i) < c->nodes; i++)
        levels++;
    return levels;
}

char *ndp_cluster_level_name(const ndp_cluster *c, int level, char *out, size_t size) {
    if (level == NDP_LINK_DEVICES)
        snprintf(out, size, "%s", c->links.kind);
    else if (level == NDP_LINK_NICS)
        snprintf(out, size, "%s", c->nics.kind);
    else
        snprintf(out, size, "%s uplink", c->network[level - NDP_LINK_UPLINKS].name);
    return out;
}

char *ndp_rate_text(double bytes_per_second, char out[NDP_RATE_TEXT]) {
    bool giga = bytes_per_second >= 0.9995e9;
    snprintf(out, NDP_RATE_TEXT, "%.3g %s", bytes_per_second / (giga ? 1e9 : 1e6), giga ? "GB/s" : "MB/s");
    return out;
}

/* ---- loads ---- */

static int unit_of_node(const link_load *l, int node) {
    int inside = l->level == NDP_LINK_DEVICES ? -1 : l->level - NDP_LINK_UPLINKS;
    return (int)(node / nodes_of_unit(l->c, inside));
}

static int devices_of(const link_load *l, int rank) { return l->c->devices_of[l->m->node[rank]]; }

/* The link of a device of a ring: to the next one, or to the one before. */
static int ring_link(const link_load *l, int node, int device, bool back) {
    int n = l->c->devices_of[node];
    return 2 * (l->first_device[node] + (device + n) % n) + back;
}

/* Along a ring of devices, the shorter way, or half each way. */
static void add_route(const link_load *l, int from, int to, double bytes, double *loads) {
    int node = l->m->node[from], n = devices_of(l, from);
    int forth = (l->m->device[to] - l->m->device[from] + n) % n, back = n - forth;
    double forth_bytes = forth < back ? bytes : forth == back ? bytes / 2 : 0;
    for (int i = 0; i < forth && forth_bytes > 0; i++)
        loads[ring_link(l, node, l->m->device[from] + i, false)] += forth_bytes;
    for (int i = 0; i < back && bytes > forth_bytes; i++)
        loads[ring_link(l, node, l->m->device[from] - i, true)] += bytes - forth_bytes;
}

static void add_device_send(const link_load *l, int from, int to, double bytes, double *loads) {
    if (l->m->node[from] != l->m->node[to] || from == to)
        return;
    if (l->c->links.shape == NDP_LINK_RING)
        add_route(l, from, to, bytes, loads);
    else if (l->c->links.shape == NDP_LINK_MESH) /* divided over the links to the group's members of this node */
        loads[from] += bytes / (l->in_unit[l->unit_of[from]] - 1);
    else
        loads[from] += bytes;
}

/* What a member sends to its neighbours, of 1 byte in all; 0 for both: it sends to all alike. */
static void to_neighbours(const link_load *l, double *next, double *before) {
    *next = l->pattern == NDP_SENDS_RING ? 0.5 : l->pattern == NDP_SENDS_NEXT ? 1 : 0;
    *before = l->pattern == NDP_SENDS_RING ? 0.5 : l->pattern == NDP_SENDS_BEFORE ? 1 : 0;
}

/* What a member sends inside its node. */
static void add_device_sends(const link_load *l, const ndp_group *g, int member, double bytes, double *loads) {
    int n = g->count, from = rank_of(g, member);
    double next, before;
    to_neighbours(l, &next, &before);
    if (next > 0)
        add_device_send(l, from, rank_of(g, (member + 1) % n), next * bytes, loads);
    if (before > 0)
        add_device_send(l, from, rank_of(g, (member + n - 1) % n), before * bytes, loads);
    for (int i = 1; i < n && l->pattern == NDP_SENDS_DIRECT; i++)
        add_device_send(l, from, rank_of(g, (member + i) % n), bytes / (n - 1), loads);
}

/* What a member sends out of its unit, of 1 byte in all. */
static double leaves(const link_load *l, const ndp_group *g, int member) {
    int n = g->count, unit = l->unit_of[rank_of(g, member)];
    double next, before;
    to_neighbours(l, &next, &before);
    if (l->pattern == NDP_SENDS_DIRECT)
        return (double)(n - l->in_unit[unit]) / (n - 1);
    return next * (l->unit_of[rank_of(g, (member + 1) % n)] != unit) +
           before * (l->unit_of[rank_of(g, (member + n - 1) % n)] != unit);
}

/* A rank sends through the NICs of its own device. Rings are several, and each leaves a node by another device, so that
 * all members of a node send. */
static void add_group(const link_load *l, const ndp_group *g, double *loads) {
    const bool rings = l->pattern == NDP_SENDS_RING;
    for (int i = 0; i < g->count; i++)
        l->in_unit[l->unit_of[rank_of(g, i)]]++;
    for (int i = 0; i < g->count && g->count > 1; i++) {
        int r = rank_of(g, i), unit = l->unit_of[r];
        double bytes = l->bytes ? l->bytes[r] : 1;
        if (l->level == NDP_LINK_DEVICES && l->in_unit[unit] > 1) {
            add_device_sends(l, g, i, bytes, loads);
        } else if (l->level != NDP_LINK_DEVICES) {
            loads[unit] += bytes * leaves(l, g, i);
            l->senders[l->m->node[r]] +=
                loads == l->all && (leaves(l, g, i) > 0 || (rings && l->in_unit[unit] < g->count));
        }
    }
    for (int i = 0; i < g->count; i++)
        l->in_unit[l->unit_of[rank_of(g, i)]] = 0;
}

/* ---- capacities ---- */

/* Of a node's NICs. A rank sends through those of its device: one, or more if there are more of them than devices. */
static double nics_of(const link_load *l, int node) {
    const ndp_nic_facts *nics = &l->c->nics;
    double devices = l->c->devices_of[node], each = nics->count > devices ? nics->count / devices : 1;
    double used = l->level == NDP_LINK_NICS && l->senders ? each * l->senders[node] : nics->count;
    return nics->bandwidth * (used < nics->count ? used : nics->count);
}

static double blocking(const ndp_cluster *c, int level) {
    return level < c->levels ? c->network[level].oversubscription : 1;
}

/* Of the link of unit `unit`: what the nodes in it have, divided by all that is shared on the way out of it. */
static double uplink_of(const link_load *l, int unit) {
    int inside = l->level - NDP_LINK_UPLINKS;
    int64_t nodes = nodes_of_unit(l->c, inside);
    double sum = 0;
    for (int64_t n = unit * nodes; n < (unit + 1) * nodes && n < l->c->nodes; n++)
        sum += nics_of(l, (int)n);
    for (int i = 0; i <= inside + 1; i++)
        sum /= blocking(l->c, i);
    return sum;
}

static double capacity_of(const link_load *l, int link) {
    double bandwidth = l->c->links.bandwidth;
    if (l->level != NDP_LINK_DEVICES)
        return uplink_of(l, link);
    if (l->c->links.shape == NDP_LINK_RING)
        return bandwidth / 2;
    if (l->c->links.shape == NDP_LINK_MESH && devices_of(l, link) > 2)
        return bandwidth / (devices_of(l, link) - 1);
    return bandwidth;
}

/* ---- a level ---- */

static double latency_of(const ndp_cluster *c, int level) {
    if (level == NDP_LINK_DEVICES)
        return c->links.latency * (c->links.shape == NDP_LINK_HOST ? 2 : 1);
    return c->nics.latency;
}

/* Members of the group in the unit that a link leaves. */
static int ranks_behind(const link_load *l, const ndp_group *g, int link) {
    int ranks = 0;
    for (int i = 0; i < g->count; i++)
        ranks += l->unit_of[rank_of(g, i)] == link;
    return l->level == NDP_LINK_DEVICES ? 1 : ranks;
}

/* Sets *out to the link of the level that takes longest; false: the group's data stay inside all units. */
static bool find_longest(const link_load *l, const ndp_group *g, ndp_link_use *out) {
    double longest = 0;
    for (int i = 0; i < l->links; i++) {
        double capacity = l->own[i] > 0 ? capacity_of(l, i) : 1, seconds = l->own[i] > 0 ? l->all[i] / capacity : 0;
        if (seconds <= longest)
            continue;
        longest = seconds;
        *out = (ndp_link_use){.level = l->level,
                              .ranks = ranks_behind(l, g, i),
                              .crosses = l->own[i],
                              .share = l->own[i] / l->all[i],
                              .capacity = capacity,
                              .rate = 1 / seconds,
                              .latency = latency_of(l->c, l->level)};
    }
    return longest > 0;
}

static void set_level(link_load *l, int level) {
    l->level = level;
    for (int r = 0; r < l->m->world; r++)
        l->unit_of[r] = unit_of_node(l, l->m->node[r]);
    l->links = ndp_cluster_link_count(l->c, l->m, level);
    memset(l->senders, 0, (size_t)l->c->nodes * sizeof *l->senders);
    memset(l->all, 0, (size_t)l->links * sizeof *l->all);
    memset(l->own, 0, (size_t)l->links * sizeof *l->own);
}

static void count_per_node(link_load *l, const ndp_group *g, ndp_group_links *out) {
    set_level(l, NDP_LINK_NICS);
    for (int i = 0; i < g->count; i++)
        l->in_unit[l->unit_of[rank_of(g, i)]]++;
    for (int i = 0; i < g->count; i++) {
        int ranks = l->in_unit[l->unit_of[rank_of(g, i)]];
        out->least = out->least && out->least < ranks ? out->least : ranks;
        out->most = out->most > ranks ? out->most : ranks;
    }
    for (int i = 0; i < g->count; i++)
        l->in_unit[l->unit_of[rank_of(g, i)]] = 0;
}

static void use_levels(link_load *l, ndp_group g, const ndp_group *groups, int n, ndp_group_links *out) {
    count_per_node(l, &g, out);
    for (int level = 0; level < ndp_cluster_levels(l->c) && g.count > 1; level++) {
        set_level(l, level);
        for (int i = 0; i < n; i++)
            add_group(l, &groups[i], l->all);
        add_group(l, &g, l->own);
        ndp_link_use *u = &out->of[out->n];
        if (!find_longest(l, &g, u))
            continue;
        out->slowest = u->rate < out->of[out->slowest].rate ? out->n : out->slowest;
        out->latency = u->latency > out->latency ? u->latency : out->latency;
        out->n++;
    }
    out->rate = out->n ? out->of[out->slowest].rate : 0;
}

/* ---- from outside ---- */

static ndp_status load_init(const ndp_cluster *c, const ndp_rank_map *m, ndp_send_pattern pattern, link_load *l) {
    size_t nodes = (size_t)c->nodes, world = (size_t)m->world,
           links = 2 * (size_t)ndp_cluster_devices(c) + nodes + world;
    size_t numbers = world + 3 * nodes + (world + 3 * nodes) % 2; /* what follows is aligned */
    int *memory = calloc(1, numbers * sizeof *memory + 2 * links * sizeof(double));
    NDP_CHECK_MEMORY(memory, "for the links of %d ranks", m->world);
    *l = (link_load){.c = c, .m = m, .pattern = pattern, .memory = memory};
    l->unit_of = memory;
    l->in_unit = memory + world;
    l->senders = l->in_unit + nodes;
    l->first_device = l->senders + nodes;
    l->all = (double *)(void *)(memory + numbers);
    l->own = l->all + links;
    for (int i = 1; i < c->nodes; i++)
        l->first_device[i] = l->first_device[i - 1] + c->devices_of[i - 1];
    return NDP_OK;
}

ndp_status ndp_cluster_links(const ndp_cluster *c, const ndp_rank_map *m, ndp_group g, const ndp_group *groups, int n,
                             ndp_send_pattern pattern, ndp_group_links *out) {
    link_load l;
    NDP_TRY(load_init(c, m, pattern, &l));
    *out = (ndp_group_links){0};
    use_levels(&l, g, groups, n, out);
    free(l.memory);
    return NDP_OK;
}

int ndp_cluster_level_between(const ndp_cluster *c, const ndp_rank_map *m, int a, int b) {
    if (m->node[a] == m->node[b])
        return NDP_LINK_DEVICES;
    int level = NDP_LINK_NICS;
    for (; level + 1 < ndp_cluster_levels(c); level++) {
        const link_load above = {.c = c, .m = m, .level = level + 1};
        if (unit_of_node(&above, m->node[a]) == unit_of_node(&above, m->node[b]))
            break;
    }
    return level;
}

ndp_group_links ndp_group_links_through(const ndp_group_links *l, int level) {
    ndp_group_links out = {.least = l->least, .most = l->most};
    for (int i = 0; i < l->n; i++) {
        const ndp_link_use *u = &l->of[i];
        bool inside = level == NDP_LINK_DEVICES, of_node = u->level == NDP_LINK_DEVICES;
        if (inside != of_node || u->level > level)
            continue;
        out.slowest = out.n == 0 || u->rate < out.of[out.slowest].rate ? out.n : out.slowest;
        out.latency = u->latency > out.latency ? u->latency : out.latency;
        out.of[out.n++] = *u;
    }
    out.rate = out.n ? out.of[out.slowest].rate : 0;
    return out;
}

int ndp_cluster_link_count(const ndp_cluster *c, const ndp_rank_map *m, int level) {
    const link_load l = {.c = c, .m = m, .level = level};
    if (level == NDP_LINK_DEVICES)
        return c->links.shape == NDP_LINK_RING ? 2 * ndp_cluster_devices(c) : m->world;
    return unit_of_node(&l, c->nodes - 1) + 1;
}

double ndp_cluster_link_capacity(const ndp_cluster *c, const ndp_rank_map *m, int level, int link) {
    const link_load l = {.c = c, .m = m, .level = level};
    return capacity_of(&l, link);
}

ndp_status ndp_cluster_add_loads(const ndp_cluster *c, const ndp_rank_map *m, const ndp_group *groups, int n,
                                 ndp_send_pattern pattern, const double *bytes, int level, double *loads) {
    link_load l;
    NDP_TRY(load_init(c, m, pattern, &l));
    set_level(&l, level);
    l.bytes = bytes;
    for (int i = 0; i < n; i++)
        add_group(&l, &groups[i], loads);
    free(l.memory);
    return NDP_OK;
}
