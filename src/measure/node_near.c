/* The nearest NIC of each GPU, and the text of a node.
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

/* ---- text ---- */

static const char *plural(int n) { return n == 1 ? "" : "s"; }

/* ", socket 1" */
static void add_place(ndp_str *out, const char *address, int socket) {
    if (*address)
        ndp_str_addf(out, " at %s", address);
    if (socket >= 0)
        ndp_str_addf(out, ", socket %d", socket);
}

static void add_sockets(const ndp_node_tree *t, ndp_str *out) {
    char memory[16];
    int threads = 0;
    ndp_str_addf(out, "%d socket%s:", t->n_sockets, plural(t->n_sockets));
    for (int i = 0; i < t->n_sockets; i++) {
        ndp_str_addf(out, "%s %d", i ? " +" : "", t->sockets[i].cores);
        threads += t->sockets[i].threads;
    }
    ndp_str_addf(out, " cores, %d threads, %s in %d NUMA node%s\n", threads, ndp_human_bytes(t->memory_bytes, memory),
                 t->numa_nodes, plural(t->numa_nodes));
}

void ndp_node_tree_describe(const ndp_node_tree *t, ndp_str *out) {
#define PATH_TEXT(NAME, text) text,
    static const char *const paths[] = {NDP_NODE_PATHS(PATH_TEXT)};
    add_sockets(t, out);
    ndp_str_addf(out, "%d GPU%s, %d NIC%s\n", t->n_gpus, plural(t->n_gpus), t->n_nics, plural(t->n_nics));
    for (int i = 0; i < t->n_gpus; i++) {
        const ndp_node_gpu *g = &t->gpus[i];
        ndp_str_addf(out, "GPU %d%s%s", i, *g->model ? " " : "", g->model);
        add_place(out, g->address, g->socket);
        if (g->nic >= 0)
            ndp_str_addf(out, ": NIC %s %s", t->nics[g->nic].name, paths[g->path]);
        ndp_str_add(out, "\n");
    }
    for (int i = 0; i < t->n_nics; i++) {
        ndp_str_addf(out, "NIC %s %s", t->nics[i].name, t->nics[i].kind);
        add_place(out, t->nics[i].address, t->nics[i].socket);
        ndp_str_add(out, "\n");
    }
}
