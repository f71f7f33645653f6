/* Ranks on the nodes of a cluster (cluster.h). */
#include "cluster/cluster.h"
#include "comm/impl.h"

#include <stdlib.h>

int ndp_cluster_devices(const ndp_cluster *c) {
    int devices = 0;
    for (int i = 0; i < c->nodes; i++)
        devices += c->devices_of[i];
    return devices;
}

void ndp_rank_map_release(ndp_rank_map *m) {
    free(m->node);
    free(m->device);
    *m = (ndp_rank_map){0};
}

/* Devices of a node are taken in the order of ranks; `taken`: of each node. */
static ndp_status take_devices(const ndp_cluster *c, ndp_rank_map *m, int *taken) {
    for (int r = 0; r < m->world; r++) {
        int node = m->node[r];
        NDP_CHECK(node >= 0 && node < c->nodes, "rank %d is on node %d, but the cluster '%s' has nodes 0 to %d", r,
                  node, c->name, c->nodes - 1);
        m->device[r] = taken[node]++;
        NDP_CHECK(taken[node] <= c->devices_of[node],
                  "rank %d is number %d on node %d of the cluster '%s', which has %d device%s: use fewer ranks a node",
                  r, taken[node], node, c->name, c->devices_of[node], c->devices_of[node] == 1 ? "" : "s");
    }
    return NDP_OK;
}

ndp_status ndp_rank_map_take(const ndp_cluster *c, int world, const int *node, ndp_rank_map *out) {
    ndp_rank_map m = {world, calloc((size_t)world, sizeof *m.node), calloc((size_t)world, sizeof *m.device)};
    int *taken = calloc((size_t)c->nodes, sizeof *taken);
    ndp_status st = NDP_MEMORY(m.node && m.device && taken, "for a map of %d ranks", world);
    for (int r = 0; r < world && st == NDP_OK; r++)
        m.node[r] = node[r];
    if (st == NDP_OK)
        st = take_devices(c, &m, taken);
    free(taken);
    if (st == NDP_OK)
        *out = m;
    else
        ndp_rank_map_release(&m);
    return st;
}

/* Rank r on the next node from `at` on that has a device left; block: the same node as long as it has. */
static int next_node(const ndp_cluster *c, const int *taken, int at) {
    while (taken[at] == c->devices_of[at])
        at = (at + 1) % c->nodes;
    return at;
}

static ndp_status map_in_order(const ndp_cluster *c, int world, bool around, ndp_rank_map *out) {
    int devices = ndp_cluster_devices(c);
    NDP_CHECK(world <= devices, "%d ranks, but the cluster '%s' has %d devices on %d nodes", world, c->name, devices,
              c->nodes);
    int *node = calloc((size_t)world, sizeof *node), *taken = calloc((size_t)c->nodes, sizeof *taken);
    ndp_status st = NDP_MEMORY(node && taken, "for a map of %d ranks", world);
    for (int r = 0, at = 0; r < world && st == NDP_OK; r++) {
        node[r] = at = next_node(c, taken, at);
        taken[at]++;
        at = around ? (at + 1) % c->nodes : at;
    }
    if (st == NDP_OK)
        st = ndp_rank_map_take(c, world, node, out);
    free(node);
    free(taken);
    return st;
}

ndp_status ndp_rank_map_fill(const ndp_cluster *c, int world, ndp_rank_map *out) {
    return map_in_order(c, world, false, out);
}

ndp_status ndp_rank_map_deal(const ndp_cluster *c, int world, ndp_rank_map *out) {
    return map_in_order(c, world, true, out);
}

int ndp_rank_map_block(const ndp_rank_map *m) { return ndp_node_block(m->node, m->world); }

ndp_status ndp_groups_alike(int world, int stride, int count, ndp_group **groups, int *n) {
    int many = world / count, k = 0;
    NDP_CHECK(stride >= 1 && count >= 1 && world % (stride * count) == 0,
              "groups of %d ranks at a distance of %d do not divide %d ranks", count, stride, world);
    ndp_group *list = calloc((size_t)many, sizeof *list);
    NDP_CHECK_MEMORY(list, "for %d groups", many);
    for (int base = 0; base < world; base += stride * count)
        for (int i = 0; i < stride; i++)
            list[k++] = (ndp_group){.base = base + i, .stride = stride, .count = count};
    *groups = list;
    *n = many;
    return NDP_OK;
}
