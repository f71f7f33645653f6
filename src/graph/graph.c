/* Building a unit's graph.
 *
 * Values are numbered; a value is its own storage, a view of another's rows or columns, or another value changed in
 * place (`root` says whose storage it is). Nodes stand in the order in which they run, so a node reads only values with
 * smaller numbers of nodes before it.
 *
 * model/ builds the forward, parallel/ writes it again for a rank and derives (derive.c), lower.c turns the lists into
 * calls. */
#include "graph/graph.h"

#include <stdio.h>
#include <stdlib.h>

static ndp_view shape_of(int64_t rows, int64_t cols, ndp_dtype type) {
    return (ndp_view){NULL, type, rows, cols, cols};
}

/* There is always a value 0, which a graph that has failed returns: its callers go on to read it. */
ndp_status ndp_graph_init(ndp_graph *g, const char *name, ndp_dtype compute, ndp_dtype grad) {
    *g = (ndp_graph){.compute = compute,
                     .grad = grad,
                     .input = NDP_NONE,
                     .output = NDP_NONE,
                     .grad_output = NDP_NONE,
                     .grad_input = NDP_NONE,
                     .writing = NDP_NONE};
    g->name = ndp_arena_strdup(&g->arena, name);
    NDP_CHECK_MEMORY(g->name, "for graph %s", name);
    NDP_TRY(ndp_array_reserve(&g->values, &g->value_capacity, 1, sizeof *g->values));
    g->values[0] = (ndp_value){.name = ""};
    return NDP_OK;
}

void ndp_graph_release(ndp_graph *g) {
    for (int i = 0; i < NDP_NODE_LISTS; i++)
        free(g->nodes[i].items);
    free(g->values);
    ndp_arena_release(&g->arena);
    *g = (ndp_graph){0};
}

/* Adds a value with its own storage; returns 0 (a harmless index) once the graph has failed. */
static int add_value(ndp_graph *g, const char *name, ndp_value_kind kind, ndp_view view) {
    if (g->status != NDP_OK)
        return 0;
    g->status = ndp_array_reserve(&g->values, &g->value_capacity, g->n_values + 1, sizeof *g->values);
    if (g->status != NDP_OK)
        return 0;
    const char *own = ndp_arena_strdup(&g->arena, name);
    g->status = NDP_MEMORY(own, "for the name of a value of graph %s", g->name);
    if (g->status != NDP_OK)
        return 0;
    int id = g->n_values++;
    g->values[id] =
        (ndp_value){.name = own, .kind = kind, .view = view, .root = id, .parent = NDP_NONE, .segment = NDP_NONE};
    return id;
}

int ndp_graph_input(ndp_graph *g, int64_t rows, int64_t cols) {
    int id = add_value(g, "x", NDP_VALUE_ACT, shape_of(rows, cols, g->compute));
    if (g->status == NDP_OK) {
        g->values[id].needs_grad = !g->ends_backward;
        g->input = id;
    }
    return id;
}

int ndp_graph_data(ndp_graph *g, int input) {
    const ndp_input *in = &g->inputs->items[input];
    int id = add_value(g, in->name, NDP_VALUE_DATA, shape_of(g->inputs->rows[in->extent], in->cols, in->type));
    if (g->status == NDP_OK)
        g->values[id].input = input;
    return id;
}

/* Glued segments are one matrix, and so are the members of a stack. */
static ndp_view glued_shape(ndp_graph *g, int slot, int segment, int segments) {
    const ndp_segment *s = &g->slots[slot]->items[segment];
    bool vector = ndp_segment_is_vector(s);
    int64_t rows = 0, cols = 0;
    for (int i = 0; i < segments; i++) {
        if (i > 0 && (!s[i].glued || ndp_segment_is_vector(&s[i]) != vector || (!vector && s[i].cols != s->cols)))
            g->status = NDP_FAIL(NDP_EBUG, "graph %s: %s is not glued to %s", g->name, s[i].name, s->name);
        rows += vector ? 0 : ndp_segment_matrices(&s[i]) * s[i].rows;
        cols += vector ? s[i].cols : 0;
    }
    ndp_dtype type = s->no_grad ? ndp_wide(g->compute) : g->compute;
    return vector ? shape_of(1, cols, type) : shape_of(rows, s->cols, type);
}

int ndp_graph_param(ndp_graph *g, int slot, int segment, int segments) {
    const ndp_segment *s = &g->slots[slot]->items[segment];
    if (g->status == NDP_OK && g->slots[slot]->packing != NDP_PACKING_NONE)
        g->status = NDP_FAIL(NDP_EBUG, "graph %s: %s is packed: no op reads it as a parameter", g->name, s->name);
    int id = add_value(g, s->name, NDP_VALUE_PARAM, glued_shape(g, slot, segment, segments));
    if (g->status != NDP_OK)
        return 0;
    ndp_value *v = &g->values[id];
    v->slot = slot, v->segment = segment, v->segments = segments, v->offset = s->offset;
    v->needs_grad = !g->frozen[slot];
    return id;
}

/* ---- packed parameters ---- */

/* A part of a packed matrix, or of all members of a stack, as it is stored; NDP_NONE: it has no such part. */
static int packed_part(ndp_graph *g, int slot, int segment, ndp_packed_part part) {
    static const char *const names[NDP_PACKED_PARTS] = {"codes", "scales", "nested"};
    const ndp_segment *s = &g->slots[slot]->items[segment];
    ndp_packed packed = ndp_segment_packed(g->slots[slot], s);
    char name[160];
    if (packed.part[part].rows == 0)
        return NDP_NONE;
    snprintf(name, sizeof name, "%s.%s", s->name, names[part]);
    int id = add_value(g, name, NDP_VALUE_PARAM, packed.part[part]);
    if (g->status != NDP_OK)
        return 0;
    ndp_value *v = &g->values[id];
    v->slot = slot, v->segment = segment, v->segments = 1, v->part = part;
    v->offset = (s->offset + packed.at[part]) / (int64_t)ndp_dtype_size(v->view.dtype);
    return id;
}

int ndp_graph_unpacked(ndp_graph *g, int slot, int segment, int segments) {
    ndp_view shape = glued_shape(g, slot, segment, segments);
    int id = add_value(g, g->slots[slot]->items[segment].name, NDP_VALUE_ACT, shape);
    if (g->status == NDP_OK)
        g->values[id].slot = slot, g->values[id].segment = segment, g->values[id].segments = segments;
    return id;
}

void ndp_graph_unpack(ndp_graph *g, ndp_node_list list, int matrix, int k) {
    if (g->status != NDP_OK)
        return;
    int slot = g->values[matrix].slot, segment = g->values[matrix].segment, ins[NDP_PACKED_PARTS];
    const ndp_segment *s = &g->slots[slot]->items[segment];
    int64_t row = 0;
    for (int i = 0; i < k; i++)
        row += ndp_segment_matrices(&s[i]) * s[i].rows;
    for (int i = 0; i < NDP_PACKED_PARTS; i++)
        ins[i] = packed_part(g, slot, segment + k, (ndp_packed_part)i);
    bool blocks = g->slots[slot]->packing == NDP_PACKING_NF4;
    ndp_op_attr attr = {.type = g->compute,
                        .first = blocks ? ndp_segment_first_block(&s[k]) : 0,
                        .row_blocks = blocks ? ndp_segment_row_blocks(&s[k]) : 0,
                        .row_group = blocks ? ndp_segment_row_group(&s[k]) : 0};
    int rows = ndp_graph_rows(g, matrix, row, ndp_segment_matrices(&s[k]) * s[k].rows);
    ndp_graph_append(g, list, &ndp_op_unpack, &attr, s[k].name, ins, NDP_PACKED_PARTS, &rows, 1);
}

int ndp_graph_param_grad(ndp_graph *g, int param) {
    if (g->status != NDP_OK)
        return 0;
    for (int i = 0; i < g->n_values; i++)
        if (g->values[i].kind == NDP_VALUE_PGRAD && g->values[i].slot == g->values[param].slot &&
            g->values[i].offset == g->values[param].offset)
            return i;
    ndp_view view = g->values[param].view;
    view.dtype = g->grad;
    char name[160];
    snprintf(name, sizeof name, "d %s", g->values[param].name);
    int id = add_value(g, name, NDP_VALUE_PGRAD, view);
    if (g->status != NDP_OK)
        return 0;
    const ndp_value *p = &g->values[param];
    ndp_value *v = &g->values[id];
    v->slot = p->slot, v->segment = p->segment, v->segments = p->segments, v->offset = p->offset;
    return id;
}

static int add_view(ndp_graph *g, int value, const char *name, int64_t row, int64_t rows, int64_t col, int64_t cols) {
    if (g->status != NDP_OK)
        return 0;
    ndp_view view = g->values[value].view;
    view.rows = rows, view.cols = cols;
    int id = add_value(g, name, g->values[value].kind, view);
    if (g->status != NDP_OK)
        return 0;
    const ndp_value *of = &g->values[value];
    ndp_value *v = &g->values[id];
    v->root = of->root, v->parent = value, v->needs_grad = of->needs_grad, v->input = of->input;
    v->row = of->row + row, v->col = of->col + col;
    return id;
}

int ndp_graph_columns(ndp_graph *g, int value, int64_t col, int64_t cols) {
    char name[160];
    snprintf(name, sizeof name, "%s[%lld:%lld]", g->values[value].name, (long long)col, (long long)(col + cols));
    return add_view(g, value, name, 0, g->values[value].view.rows, col, cols);
}

int ndp_graph_rows(ndp_graph *g, int value, int64_t row, int64_t rows) {
    char name[160];
    snprintf(name, sizeof name, "%s{%lld:%lld}", g->values[value].name, (long long)row, (long long)(row + rows));
    return add_view(g, value, name, row, rows, 0, g->values[value].view.cols);
}

int ndp_graph_value(ndp_graph *g, const char *name, int64_t rows, int64_t cols, ndp_dtype type) {
    return add_value(g, name, NDP_VALUE_ACT, shape_of(rows, cols, type));
}

/* Appends a node whose absent outputs are made from the op's shape rule. */
void ndp_graph_append(ndp_graph *g, ndp_node_list list, const ndp_op *op, const ndp_op_attr *attr, const char *name,
                      const int *ins, int n_in, int *outs, int n_out) {
    if (g->status != NDP_OK)
        return;
    ndp_node node = {.op = op,
                     .attr = attr ? ndp_op_attr_of(op, attr) : (ndp_op_attr){0},
                     .n_in = n_in,
                     .n_out = n_out,
                     .of = g->writing};
    ndp_op_call call = {.op = op, .attr = &node.attr};
    ndp_view *in = call.in, *out = call.out;
    bool needs = false;
    for (int i = 0; i < NDP_OP_MAX_IN; i++) {
        node.in[i] = i < n_in ? ins[i] : NDP_NONE;
        if (node.in[i] != NDP_NONE) {
            in[i] = g->values[ins[i]].view;
            needs |= g->values[ins[i]].needs_grad && !op->constant;
        }
    }
    for (int i = 0; i < n_out;
         i++) /* a rule may keep what it cannot know: the rows of a table whose gradient it makes */
        if (outs[i] != NDP_NONE)
            out[i] = g->values[outs[i]].view;
    g->status = op->shape(&call);
    for (int i = 0; i < n_out && g->status == NDP_OK; i++) {
        if (outs[i] == NDP_NONE && out[i].rows > 0) {
            char full[160];
            snprintf(full, sizeof full, i ? "%s.%d" : "%s", name, i);
            outs[i] = add_value(g, full, NDP_VALUE_ACT, shape_of(out[i].rows, out[i].cols, out[i].dtype));
            if (g->status != NDP_OK)
                return;
            ndp_value *v = &g->values[outs[i]];
            v->needs_grad = needs;
            if (i == 0 && op->in_place) {
                const ndp_value *of = &g->values[ins[0]];
                bool rows = out[i].rows < of->view.rows;
                v->root = of->root, v->row = of->row + (rows ? node.attr.first : 0), v->col = of->col;
                v->view = of->view, v->view.rows = out[i].rows;
            }
        } else if (outs[i] != NDP_NONE) {
            g->values[outs[i]].needs_grad |= needs && g->values[outs[i]].kind == NDP_VALUE_ACT;
            const ndp_view *have = &g->values[outs[i]].view;
            if (have->rows != out[i].rows || have->cols != out[i].cols)
                g->status = NDP_FAIL(NDP_EBUG, "graph %s: %s makes [%lld,%lld], its destination %s is [%lld,%lld]",
                                     g->name, op->name, (long long)out[i].rows, (long long)out[i].cols,
                                     g->values[outs[i]].name, (long long)have->rows, (long long)have->cols);
        }
        node.out[i] = outs[i];
    }
    ndp_nodes *nodes = &g->nodes[list];
    if (g->status == NDP_OK)
        g->status = ndp_array_reserve(&nodes->items, &nodes->capacity, nodes->n + 1, sizeof *nodes->items);
    if (g->status == NDP_OK)
        nodes->items[nodes->n++] = node;
}

void ndp_graph_repeat(ndp_graph *g, ndp_node_list list, int first, int64_t times, int count, int index) {
    ndp_nodes *nodes = &g->nodes[list];
    const ndp_node_repeat *last = nodes->n_repeats > 0 ? &nodes->repeats[nodes->n_repeats - 1] : NULL;
    const ndp_view *v = count == NDP_NONE ? NULL : &g->values[count].view;
    bool fits = first >= 0 && first < nodes->n && times >= 0 && (!last || last->first + last->n <= first);
    bool counts = !v || (v->dtype == NDP_I64 && v->rows == 1 && v->cols == 1);
    if (g->status == NDP_OK && (!fits || !counts || nodes->n_repeats == NDP_MAX_REPEATS))
        g->status = NDP_FAIL(NDP_EBUG, "graph %s: nodes %d to %d of %d cannot repeat: %s", g->name, first, nodes->n - 1,
                             nodes->n,
                             !fits     ? "no nodes, or another range has them"
                             : !counts ? "their count is not one i64"
                                       : "too many ranges");
    if (g->status == NDP_OK)
        nodes->repeats[nodes->n_repeats++] = (ndp_node_repeat){first, nodes->n - first, times, count, index};
}

void ndp_graph_op(ndp_graph *g, const ndp_op *op, const ndp_op_attr *attr, const char *name, const int *ins, int n_in,
                  int *outs, int n_out) {
    ndp_graph_append(g, NDP_NODES_FORWARD, op, attr, name, ins, n_in, outs, n_out);
}

int ndp_graph_op1(ndp_graph *g, const ndp_op *op, const ndp_op_attr *attr, const char *name, const int *ins, int n_in) {
    int out = NDP_NONE;
    ndp_graph_append(g, NDP_NODES_FORWARD, op, attr, name, ins, n_in, &out, 1);
    return g->status == NDP_OK ? out : 0;
}

void ndp_graph_output(ndp_graph *g, int value) { g->output = value; }

int64_t ndp_graph_nodes(const ndp_graph *g) {
    int64_t n = 0;
    for (int list = 0; list < NDP_NODE_LISTS; list++)
        n += g->nodes[list].n;
    return n;
}

bool ndp_graph_has_op(const ndp_graph *g, const ndp_op *op) {
    bool has = false;
    for (int i = 0; i < g->nodes[NDP_NODES_FORWARD].n; i++)
        has |= g->nodes[NDP_NODES_FORWARD].items[i].op == op;
    return has;
}

/* ---- graphs that are alike ---- */

static bool nodes_alike(const ndp_node *a, const ndp_node *b) {
    return a->op == b->op && a->n_in == b->n_in && a->n_out == b->n_out && ndp_op_attrs_equal(&a->attr, &b->attr) &&
           memcmp(a->in, b->in, (size_t)a->n_in * sizeof *a->in) == 0 &&
           memcmp(a->out, b->out, (size_t)a->n_out * sizeof *a->out) == 0;
}

static bool values_alike(const ndp_value *a, const ndp_value *b) {
    return a->kind == b->kind && a->view.rows == b->view.rows && a->view.cols == b->view.cols &&
           a->view.ld == b->view.ld && a->view.dtype == b->view.dtype && a->root == b->root && a->parent == b->parent &&
           a->row == b->row && a->col == b->col && a->slot == b->slot && a->segment == b->segment &&
           a->segments == b->segments && a->offset == b->offset && a->part == b->part && a->input == b->input &&
           a->needs_grad == b->needs_grad;
}

bool ndp_graphs_alike(const ndp_graph *a, const ndp_graph *b) {
    const ndp_nodes *p = &a->nodes[NDP_NODES_FORWARD], *q = &b->nodes[NDP_NODES_FORWARD];
    bool same = a->n_values == b->n_values && p->n == q->n && a->input == b->input && a->output == b->output &&
                a->ends_backward == b->ends_backward && memcmp(a->frozen, b->frozen, sizeof a->frozen) == 0;
    for (int i = 0; same && i < p->n; i++)
        same = nodes_alike(&p->items[i], &q->items[i]);
    for (int i = 0; same && i < a->n_values; i++)
        same = values_alike(&a->values[i], &b->values[i]);
    return same;
}
