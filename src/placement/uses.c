/* Which operands of the whole graph a gradient flows through, and their weights. */
#include "placement/uses.h"

#include "ops/op.h"

int ndp_value_origin(const ndp_graph *g, int value, int64_t *col) {
    *col = 0;
    for (; g->values[value].parent != NDP_NONE; value = g->values[value].parent)
        *col += g->values[value].col - g->values[g->values[value].parent].col;
    return value;
}

int64_t ndp_param_before(const ndp_graph *g, int param, int segment) {
    const ndp_value *v = &g->values[param];
    int64_t n = 0;
    for (int k = v->segment; k < segment; k++) {
        const ndp_segment *s = &g->slots[v->slot]->items[k];
        n += ndp_segment_matrices(s) * s->part[ndp_segment_is_vector(s)];
    }
    return n;
}

/* The value that operand k of node i is. add_rmsnorm reads its own sum again, by its norm: operand NDP_USE_NORM. The
 * unit after this one uses the output, as operand 0 of a node behind the last one. */
static int operand_of(const ndp_graph *g, int i, int k) {
    const ndp_nodes *nodes = &g->nodes[NDP_NODES_FORWARD];
    const ndp_node *n = &nodes->items[i];
    if (i == nodes->n)
        return k == 0 ? g->output : NDP_NONE;
    return k < n->n_in ? n->in[k] : k == NDP_USE_NORM && n->op == &ndp_op_add_rmsnorm ? n->out[0] : NDP_NONE;
}

/* Forward from the end: a gradient flows into what trained values are made of. */
static void find_flow(ndp_uses *u, bool *flows) {
    const ndp_graph *g = u->graph;
    int64_t col;
    if (g->output != NDP_NONE)
        flows[ndp_value_origin(g, g->output, &col)] = g->values[g->output].needs_grad;
    u->of[g->nodes[NDP_NODES_FORWARD].n][0] = g->output != NDP_NONE && g->values[g->output].needs_grad;
    for (int i = g->nodes[NDP_NODES_FORWARD].n - 1; i >= 0; i--) {
        const ndp_node *n = &g->nodes[NDP_NODES_FORWARD].items[i];
        bool here = n->attr.train; /* the loss */
        for (int k = 0; k < n->n_out; k++)
            here |= n->out[k] != NDP_NONE && flows[ndp_value_origin(g, n->out[k], &col)];
        bool normed = n->op != &ndp_op_add_rmsnorm || flows[n->out[1]];
        for (int k = 0; k < NDP_OP_MAX_IN && here; k++) {
            int value = operand_of(g, i, k);
            if (value != NDP_NONE && g->values[value].needs_grad && (normed || (k != NDP_USE_NORM && k != 2)))
                u->of[i][k] = flows[ndp_value_origin(g, value, &col)] = true;
        }
    }
}

/* The columns of a value that a use is of, or segments of a slot's buffer. */
typedef struct use_range {
    int value, slot;
    int64_t first, end;
} use_range;

static use_range range_of(const ndp_graph *g, int value) {
    const ndp_value *v = &g->values[value];
    use_range r = {.slot = NDP_NONE};
    if (v->kind == NDP_VALUE_PARAM)
        return (use_range){NDP_NONE, v->slot, v->segment, v->segment + v->segments};
    r.value = ndp_value_origin(g, value, &r.first);
    r.end = r.first + v->view.cols;
    return r;
}

/* The weight of operand k of node i: its part of all that use the same elements, in their order; *partly: one of them
 * has some of its columns. */
static ndp_share weight_of(const ndp_uses *u, int i, int k, bool *partly) {
    const ndp_graph *g = u->graph;
    use_range of = range_of(g, operand_of(g, i, k));
    int64_t n = 0, before = 0;
    for (int j = 0; j <= g->nodes[NDP_NODES_FORWARD].n; j++)
        for (int o = 0; o < NDP_OP_MAX_IN; o++) {
            if (u->of[j][o] == 0)
                continue;
            use_range r = range_of(g, operand_of(g, j, o));
            if (r.value != of.value || r.slot != of.slot || r.first >= of.end || of.first >= r.end)
                continue;
            *partly |= r.first > of.first || r.end < of.end;
            before += j < i || (j == i && o < k);
            n++;
        }
    ndp_dim_key dim = ndp_dim_make(ndp_dim_make('u', (uint64_t)of.value), (uint64_t)of.slot);
    return ndp_range_share(ndp_dim_make(dim, (uint64_t)of.first), n, before, before + 1);
}

static ndp_status weigh(ndp_uses *u) {
    bool partly = false;
    for (int i = 0; i <= u->graph->nodes[NDP_NODES_FORWARD].n; i++)
        for (int k = 0; k < NDP_OP_MAX_IN; k++)
            u->of[i][k] = u->of[i][k] ? weight_of(u, i, k, &partly) : 0;
    return partly ? NDP_FAIL(NDP_EBUG, "placement: unit %s uses overlapping columns of a value", u->graph->name)
                  : NDP_OK;
}

ndp_status ndp_uses_init(const ndp_graph *g, ndp_arena *arena, ndp_uses *out) {
    bool *flows; /* by value: a gradient of it is made */
    *out = (ndp_uses){.graph = g};
    NDP_TRY(NDP_NEW(arena, g->nodes[NDP_NODES_FORWARD].n + 1, out->of));
    NDP_TRY(NDP_NEW(arena, g->n_values, flows));
    find_flow(out, flows);
    return weigh(out);
}
