/* Which results of a forward a selective recompute keeps (kept.h). Products are counted over the whole unit, in the
 * order of its nodes: the first is kept, the second made again, and so on. */
#include "graph/kept.h"

static bool is_product(const ndp_node *n) { return n->op == &ndp_op_linear || n->op == &ndp_op_linear_stack; }

/* Of a product of glued matrices, one part a tensor: a fused tensor is one. */
static int tensor_parts(const ndp_graph *g, const ndp_node *n, ndp_kept_part *parts) {
    const ndp_value *w = &g->values[n->in[1]];
    int count = 0;
    if (n->op != &ndp_op_linear || w->parent != NDP_NONE || w->segment == NDP_NONE || w->segments < 2)
        return 0;
    int64_t col = 0;
    for (int k = 0; k < w->segments; k++) {
        const ndp_segment *s = &g->slots[w->slot]->items[w->segment + k];
        if (count == 0 || !ndp_segment_continues(s)) {
            if (count == NDP_MOST_PARTS)
                return 0;
            parts[count++] = (ndp_kept_part){0, col, 0};
        }
        parts[count - 1].cols += s->rows;
        col += s->rows;
    }
    return col == g->values[n->out[0]].view.cols ? count : 0;
}

int ndp_kept_parts(const ndp_graph *g, const ndp_node *n, ndp_kept_part *parts) {
    int count = is_product(n) ? tensor_parts(g, n, parts) : 0;
    for (int k = 0; count < 2 && k < n->n_out; k++)
        parts[k] = (ndp_kept_part){k, 0, n->out[k] == NDP_NONE ? 0 : g->values[n->out[k]].view.cols};
    return count < 2 ? n->n_out : count;
}

static bool is_tensor_sum(const ndp_node *n) {
    return (n->op->collective == NDP_REDUCE_SCATTER || n->op->collective == NDP_ALL_REDUCE) &&
           n->attr.group == NDP_GROUP_TP;
}

/* A result of attention, or a sum over the tensor axis; also rounded. Turns of a ring, their merges and the rounding
 * are parts of one node of the whole graph, which `of` names. */
static bool is_result(const ndp_nodes *nodes, int i) {
    const ndp_node *n = &nodes->items[i];
    if (n->op != &ndp_op_copy)
        return n->op == &ndp_op_attention || n->op == &ndp_op_attention_merge || is_tensor_sum(n);
    bool rounded = false;
    for (int k = 0; k < i; k++)
        rounded |= nodes->items[k].of == n->of && nodes->items[k].op != &ndp_op_copy && is_result(nodes, k);
    return rounded;
}

static bool repeats(const ndp_nodes *nodes, int i) {
    bool in = false;
    for (int k = 0; k < nodes->n_repeats; k++)
        in |= i >= nodes->repeats[k].first && i < nodes->repeats[k].first + nodes->repeats[k].n;
    return in;
}

void ndp_kept_choose(const ndp_graph *g, uint32_t *kept) {
    const ndp_nodes *nodes = &g->nodes[NDP_NODES_FORWARD];
    ndp_kept_part parts[NDP_MOST_PARTS];
    int products = 0;
    for (int i = 0; i < nodes->n; i++) {
        const ndp_node *n = &nodes->items[i];
        kept[i] = 0;
        if (repeats(nodes, i))
            continue;
        int count = ndp_kept_parts(g, n, parts);
        for (int k = 0; k < count; k++) {
            bool keep = is_product(n) ? products++ % 2 == 0 : is_result(nodes, i);
            kept[i] |= keep && parts[k].cols > 0 ? 1u << k : 0;
        }
    }
}
