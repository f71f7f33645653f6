/* Which operands of the whole graph a gradient flows through, and their weights. */
#include "placement/uses.h"

#include "ops/op.h"
#include <string.h>

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

/* The value that operand k of a node is. add_rmsnorm reads its own sum again, by its norm: operand NDP_USE_NORM. */
static int operand_of(const ndp_node *n, int k) {
    return k < n->n_in ? n->in[k] : k == NDP_USE_NORM && n->op == &ndp_op_add_rmsnorm ? n->out[0] : NDP_NONE;
}

/* Forward from the end: a gradient flows into what trained values are made of. */
static void find_flow(ndp_uses *u) {
    const ndp_graph *g = u->graph;
    int64_t col;
    if (g->output != NDP_NONE)
        u->flows[ndp_value_origin(g, g->output, &col)] = g->values[g->output].needs_grad;
    for (int i = g->nodes[NDP_NODES_FORWARD].n - 1; i >= 0; i--) {
        const ndp_node *n = &g->nodes[NDP_NODES_FORWARD].items[i];
        bool flows = n->attr.train; /* the loss */
        for (int k = 0; k < n->n_out; k++)
            flows |= n->out[k] != NDP_NONE && u->flows[ndp_value_origin(g, n->out[k], &col)];
        bool normed = n->op != &ndp_op_add_rmsnorm || u->flows[n->out[1]];
        for (int k = 0; k < NDP_OP_MAX_IN && flows; k++)
            if (operand_of(n, k) != NDP_NONE && g->values[operand_of(n, k)].needs_grad &&
                (normed || (k != NDP_USE_NORM && k != 2))) {
                u->flows[ndp_value_origin(g, operand_of(n, k), &col)] = true;
                u->of[i][k] = ndp_share_random(ndp_dim_make((uint64_t)i + 1, (uint64_t)k));
            }
    }
}

/* The columns of a use, or, of a parameter, its segments; -1, 0: the whole graph's output. */
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

/* The weight of what uses the elements of `of`; *partly: one of them has some of its columns. */
static ndp_share total_of(const ndp_uses *u, const ndp_share (*weights)[NDP_OP_MAX_IN], use_range of, bool *partly) {
    const ndp_graph *g = u->graph;
    ndp_share sum = 0;
    for (int i = 0; i < g->nodes[NDP_NODES_FORWARD].n; i++)
        for (int k = 0; k < NDP_OP_MAX_IN; k++) {
            if (weights[i][k] == 0)
                continue;
            use_range r = range_of(g, operand_of(&g->nodes[NDP_NODES_FORWARD].items[i], k));
            if (r.value != of.value || r.slot != of.slot || r.first >= of.end || of.first >= r.end)
                continue;
            *partly |= r.first > of.first || r.end < of.end;
            sum = ndp_share_add(sum, weights[i][k]);
        }
    return sum;
}

/* The unit after this one uses the output: a use that no node of this graph makes. */
static ndp_share outside(const ndp_graph *g, use_range of) {
    bool out = g->output != NDP_NONE && g->values[g->output].needs_grad && of.slot == NDP_NONE;
    use_range r = out ? range_of(g, g->output) : of;
    return out && r.value == of.value ? ndp_share_random(ndp_dim_make(0, 0)) : 0;
}

static ndp_status normalise(ndp_uses *u, ndp_arena *arena) {
    const ndp_nodes *nodes = &u->graph->nodes[NDP_NODES_FORWARD];
    ndp_share(*raw)[NDP_OP_MAX_IN];
    bool partly = false;
    NDP_TRY(NDP_NEW(arena, nodes->n, raw));
    memcpy(raw, u->of, (size_t)nodes->n * sizeof *raw);
    for (int i = 0; i < nodes->n; i++)
        for (int k = 0; k < NDP_OP_MAX_IN; k++)
            if (raw[i][k] != 0) {
                use_range of = range_of(u->graph, operand_of(&nodes->items[i], k));
                ndp_share total = total_of(u, (const ndp_share(*)[NDP_OP_MAX_IN])raw, of, &partly);
                total = ndp_share_add(total, outside(u->graph, of));
                u->of[i][k] = ndp_share_mul(raw[i][k], ndp_share_inverse(total));
            }
    return partly ? NDP_FAIL(NDP_EBUG, "placement: unit %s uses overlapping columns of a value", u->graph->name)
                  : NDP_OK;
}

ndp_status ndp_uses_init(const ndp_graph *g, ndp_arena *arena, ndp_uses *out) {
    *out = (ndp_uses){.graph = g};
    NDP_TRY(NDP_NEW(arena, g->nodes[NDP_NODES_FORWARD].n, out->of));
    NDP_TRY(NDP_NEW(arena, g->n_values, out->flows));
    find_flow(out);
    return normalise(out, arena);
}

ndp_share ndp_uses_outside(const ndp_uses *u) {
    const ndp_graph *g = u->graph;
    ndp_share inside = 0;
    use_range out = range_of(g, g->output);
    for (int i = 0; i < g->nodes[NDP_NODES_FORWARD].n; i++)
        for (int k = 0; k < NDP_OP_MAX_IN; k++)
            if (u->of[i][k] != 0) {
                use_range r = range_of(g, operand_of(&g->nodes[NDP_NODES_FORWARD].items[i], k));
                inside = ndp_share_add(inside, r.value == out.value && r.slot == out.slot ? u->of[i][k] : 0);
            }
    return ndp_share_sub(1, inside);
}
