/* The delta rule over the context axis. What the rows of a piece do to the state before it is a map (ops/delta_rule.c)
 * of a size that no length changes. In the forward each rank makes the maps of its pieces from nothing, all are
 * gathered, each rank composes those before its pieces, in their order, and runs its rows from these states:
 *
 *   delta_map -> all_gather -> delta_states -> delta_rule
 *
 * In the backward it makes what its rows give to the gradient of the state before each piece, these are gathered, and
 * the maps once more, each rank composes those behind its pieces, from the last one on, and runs its rows back:
 *
 *   delta_map_back -> all_gather -> delta_states -> delta_rule_bwd
 *
 * This is written into the derived graph: derived from the forward, maps would have gradients of their own, and the
 * rows would be run back twice. */
#include "parallel/pass.h"

#include <stdlib.h>

typedef struct maps {
    ndp_graph *g;
    ndp_node_list list;
    ndp_node node; /* the rule, or its backward */
} maps;

enum { K = 1, START = 5, STATES }; /* operands of the rule; of its backward they stand one further */
enum { BWD_STATES = STATES + 1, BWD_AFTER };

static int append(maps *m, const ndp_op *op, const ndp_op_attr *attr, const char *name, const int *ins, int n_in) {
    int made = NDP_NONE;
    ndp_graph_append(m->g, m->list, op, attr, name, ins, n_in, &made, 1);
    return made;
}

static int gather(maps *m, const char *name, int x) {
    ndp_op_attr attr = {.group = NDP_GROUP_CP, .ranks = m->node.attr.ranks};
    return append(m, &ndp_op_all_gather, &attr, name, &x, 1);
}

static void forward(maps *m) {
    int *in = m->node.in;
    int map = append(m, &ndp_op_delta_map, &m->node.attr, "map", in + K, START);
    int all[] = {gather(m, "map", map), NDP_NONE};
    in[STATES] = append(m, &ndp_op_delta_states, &m->node.attr, "states", all, 2);
    m->node.n_in = STATES + 1;
}

/* What the forward made for the same node of the whole graph. */
static const ndp_node *made_by(const maps *m, const ndp_op *op) {
    const ndp_nodes *nodes = &m->g->nodes[NDP_NODES_FORWARD];
    for (int i = 0; i < nodes->n; i++)
        if (nodes->items[i].op == op && nodes->items[i].of == m->node.of)
            return &nodes->items[i];
    return NULL;
}

static void backward(maps *m) {
    int *in = m->node.in, ins[] = {in[0], in[1], in[2], in[4], in[5], in[1 + START]};
    int map = made_by(m, &ndp_op_delta_map)->out[0], states = made_by(m, &ndp_op_delta_rule)->in[STATES];
    int back = append(m, &ndp_op_delta_map_back, &m->node.attr, "d states", ins, 6);
    int all[] = {gather(m, "map", map), gather(m, "d states", back)};
    in[BWD_STATES] = states;
    in[BWD_AFTER] = append(m, &ndp_op_delta_states, &m->node.attr, "d states", all, 2);
    m->node.n_in = BWD_AFTER + 1;
}

static ndp_status rewrite_list(maps *m) {
    ndp_nodes old = m->g->nodes[m->list];
    m->g->nodes[m->list] = (ndp_nodes){0};
    for (int i = 0; i < old.n && m->g->status == NDP_OK; i++) {
        m->node = old.items[i];
        m->g->writing = m->node.of;
        if (m->node.op == &ndp_op_delta_rule)
            forward(m);
        else if (m->node.op == &ndp_op_delta_rule_bwd)
            backward(m);
        ndp_node *n = &m->node;
        ndp_graph_append(m->g, m->list, n->op, &n->attr, n->op->name, n->in, n->n_in, n->out, n->n_out);
    }
    free(old.items);
    m->g->writing = NDP_NONE;
    return m->g->status;
}

ndp_status ndp_context_maps(ndp_graph *g) {
    maps m = {.g = g};
    for (int list = 0; list < NDP_NODE_LISTS; list++) {
        m.list = (ndp_node_list)list;
        NDP_TRY(rewrite_list(&m));
    }
    return NDP_OK;
}
