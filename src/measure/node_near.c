/* The nearest NIC of each GPU.
 *
 * All ancestors that a GPU has in common with NICs are on its own way to the root, so the deepest of them is the
 * nearest. GPUs choose one after the other, and of equal NICs take the one that the fewest have chosen. */
#include "measure/node_near.h"

#include <string.h>

static int depth_of(hwloc_obj_t o) {
    int depth = 0;
    while ((o = o->parent))
        depth++;
    return depth;
}

/* hwloc's own function compares depths, which I/O objects do not have. */
static hwloc_obj_t common_ancestor(hwloc_obj_t a, hwloc_obj_t b) {
    int deep_a = depth_of(a), deep_b = depth_of(b);
    for (; deep_a > deep_b; deep_a--)
        a = a->parent;
    for (; deep_b > deep_a; deep_b--)
        b = b->parent;
    while (a != b)
        a = a->parent, b = b->parent;
    return a;
}

/* By the object that both are below. A socket is -1 where it is not known. */
static ndp_node_path path_over(hwloc_obj_t common, int socket, int other) {
    if (common->type == HWLOC_OBJ_BRIDGE)
        return common->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI ? NDP_NODE_PATH_SWITCH : NDP_NODE_PATH_BRIDGE;
    return socket >= 0 && socket == other ? NDP_NODE_PATH_SOCKET : NDP_NODE_PATH_NODE;
}

static bool is_ethernet(const ndp_node_nic *n) { return strcmp(n->kind, "ethernet") == 0; }

/* `among`: the NICs to choose from. `chosen`: by how many GPUs each is. */
static void choose(ndp_node_tree *t, ndp_node_gpu *g, hwloc_obj_t gpu, const hwloc_obj_t *nics, const bool *among,
                   int *chosen) {
    int deepest = -1;
    for (int j = 0; j < t->n_nics; j++) {
        hwloc_obj_t common = common_ancestor(gpu, nics[j]);
        int depth = depth_of(common);
        if (!among[j] || depth < deepest || (depth == deepest && chosen[j] >= chosen[g->nic]))
            continue;
        deepest = depth;
        g->nic = j;
        g->path = path_over(common, g->socket, t->nics[j].socket);
    }
    if (g->nic >= 0)
        chosen[g->nic]++;
}

void ndp_node_choose_nics(ndp_node_tree *t, const hwloc_obj_t *gpus, const hwloc_obj_t *nics) {
    int chosen[NDP_MOST_NODE_NICS] = {0};
    bool among[NDP_MOST_NODE_NICS], fabric = false;
    for (int j = 0; j < t->n_nics; j++)
        fabric = fabric || !is_ethernet(&t->nics[j]);
    for (int j = 0; j < t->n_nics; j++)
        among[j] = !fabric || !is_ethernet(&t->nics[j]);
    for (int i = 0; i < t->n_gpus; i++)
        choose(t, &t->gpus[i], gpus[i], nics, among, chosen);
}
