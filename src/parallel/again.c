/* Gathering and unpacking again. If the backward read what the forward gathered, every rank would keep all of it, which
 * the axis is there to avoid. So the backward gathers it once more from the rank's own part, which is kept (as
 * Megatron-LM does with its sequence slices, arXiv:2205.05198). Likewise it unpacks packed matrices again: of a unit's,
 * none but those that are read at the moment exist. And it takes rows for experts again, of which there are as many
 * copies as a row has choices, and exchanges or gathers again what a state is made of, and filters it. */
#include "parallel/pass.h"

#include <stdlib.h>

enum { REPEATED = 4 };

typedef struct again again;
struct again {
    ndp_graph *g;
    ndp_node_list list;
    int *made; /* by value of the graph as it was */
    /* What the backward reads instead of a value that the forward made. */
    int (*make)(again *a, int value);
    bool ahead;                  /* one node before the first that reads it */
    const ndp_op *ops[REPEATED]; /* `repeat`: what these made, */
    ndp_groups groups;           /* collectives over these */
};

static const ndp_node *maker(const ndp_graph *g, int value) {
    const ndp_nodes *forward = &g->nodes[NDP_NODES_FORWARD];
    for (int i = 0; i < forward->n; i++)
        if (forward->items[i].out[0] == value)
            return &forward->items[i];
    return NULL;
}

static int append(const again *a, ndp_node n) {
    int made = NDP_NONE;
    a->g->writing = n.of;
    ndp_graph_append(a->g, a->list, n.op, &n.attr, a->g->values[n.out[0]].name, n.in, n.n_in, &made, 1);
    return made;
}

static bool is_repeated(const again *a, const ndp_node *n) {
    bool is = false;
    for (int i = 0; n && i < REPEATED; i++)
        is |= n->op == a->ops[i];
    return is && (n->op->collective == NDP_LOCAL || (a->groups & NDP_GROUP_BIT(n->attr.group)));
}

static int make_again(again *a, int value);

/* Made now by the same node, from operands that are made again too; for a collective from a copy if the forward needed
 * one. */
static int repeat(again *a, int value) {
    const ndp_node *node = maker(a->g, value);
    if (!is_repeated(a, node))
        return value;
    ndp_node n = *node; /* the list may move */
    for (int k = 0; k < n.n_in; k++) {
        const ndp_node *copy = n.in[k] == NDP_NONE || n.op->collective == NDP_LOCAL ? NULL : maker(a->g, n.in[k]);
        n.in[k] = copy && copy->op == &ndp_op_copy ? append(a, *copy) : make_again(a, n.in[k]);
    }
    return append(a, n);
}

/* Unpacked now, by the nodes that filled the forward's matrix. */
static int unpack(again *a, int value) {
    const ndp_value *w = &a->g->values[value];
    if (w->kind != NDP_VALUE_ACT || w->segment == NDP_NONE)
        return value;
    int made = ndp_graph_unpacked(a->g, w->slot, w->segment, w->segments);
    for (int i = 0, k = 0; i < a->g->nodes[NDP_NODES_FORWARD].n && a->g->status == NDP_OK; i++) {
        const ndp_node *n = &a->g->nodes[NDP_NODES_FORWARD].items[i];
        if (n->op != &ndp_op_unpack || a->g->values[n->out[0]].parent != value)
            continue;
        a->g->writing = n->of;
        ndp_graph_unpack(a->g, a->list, made, k++);
    }
    return made;
}

static int make_again(again *a, int value) {
    if (value == NDP_NONE)
        return value;
    if (a->made[value] == NDP_NONE)
        a->made[value] = a->make(a, value);
    return a->made[value];
}

/* Writes the list anew. */
static void write_list(again *a, const ndp_nodes *old) {
    for (int i = 0; i < old->n && a->g->status == NDP_OK; i++) {
        ndp_node n = old->items[i];
        for (int k = 0; k < n.n_in; k++)
            n.in[k] = make_again(a, n.in[k]);
        for (int k = 0; a->ahead && i + 1 < old->n && k < old->items[i + 1].n_in; k++)
            (void)make_again(a, old->items[i + 1].in[k]);
        a->g->writing = n.of;
        ndp_graph_append(a->g, a->list, n.op, &n.attr, n.op->name, n.in, n.n_in, n.out, n.n_out);
    }
}

static ndp_status write_again(again a) {
    ndp_graph *g = a.g;
    a.made = malloc(((size_t)g->n_values + 1) * sizeof *a.made);
    if (!a.made)
        return NDP_FAIL(NDP_ENOMEM, "graph %s: not enough memory to write it for a rank", g->name);
    for (int v = 0; v < g->n_values; v++)
        a.made[v] = NDP_NONE;
    ndp_nodes old = g->nodes[a.list];
    g->nodes[a.list] = (ndp_nodes){0};
    write_list(&a, &old);
    g->writing = NDP_NONE;
    free(old.items);
    free(a.made);
    return g->status;
}

ndp_status ndp_gather_again(ndp_graph *g, ndp_node_list list, ndp_group_kind group) {
    return write_again((again){.g = g,
                               .list = list,
                               .make = repeat,
                               .ahead = true,
                               .ops = {&ndp_op_all_gather},
                               .groups = NDP_GROUP_BIT(group)});
}

ndp_status ndp_take_again(ndp_graph *g, ndp_node_list list) {
    return write_again((again){.g = g, .list = list, .make = repeat, .ops = {&ndp_op_take_rows}});
}

ndp_status ndp_states_again(ndp_graph *g, ndp_node_list list) {
    return write_again((again){.g = g,
                               .list = list,
                               .make = repeat,
                               .ahead = true,
                               .ops = {&ndp_op_conv_silu, &ndp_op_all_gather, &ndp_op_heads_split, &ndp_op_all_to_all},
                               .groups = NDP_GROUP_BIT(NDP_GROUP_SP)});
}

ndp_status ndp_unpack_again(ndp_graph *g, ndp_node_list list) {
    return write_again((again){.g = g, .list = list, .make = unpack});
}
