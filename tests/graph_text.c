/* Graphs as text, for golden files and a debugger.
 *
 * Names of values need not be unique. The second value called `norm` is `norm#2`; a view is its parent's label with the
 * range, `qkv[0:8]` (columns) or `k_pos{0:4}` (rows). An output shows its shape and type where a node makes it; values
 * that no node makes (parameters, data, the input) are listed first. */
#include "graph_text.h"

#include "mesh/mesh.h"
#include <string.h>

/* The first value that stands for the same parameter, parameter gradient or data; other values stand for themselves. */
static int first_alike(const ndp_graph *g, int value) {
    const ndp_value *v = &g->values[value];
    for (int i = 0; v->kind != NDP_VALUE_ACT && i < value; i++) {
        const ndp_value *w = &g->values[i];
        if (w->kind == v->kind && w->slot == v->slot && w->offset == v->offset && strcmp(w->name, v->name) == 0)
            return i;
    }
    return value;
}

static void add_label(const ndp_graph *g, int value, ndp_str *out) {
    if (value == NDP_NONE) {
        ndp_str_add(out, "-");
        return;
    }
    const ndp_value *v = &g->values[value];
    if (v->parent != NDP_NONE) {
        add_label(g, v->parent, out);
        ndp_str_add(out, v->name + strlen(g->values[v->parent].name));
        return;
    }
    int first = first_alike(g, value), number = 1;
    for (int i = 0; i < first; i++)
        number += g->values[i].parent == NDP_NONE && strcmp(g->values[i].name, v->name) == 0 && first_alike(g, i) == i;
    ndp_str_add(out, v->name);
    if (number > 1 || strpbrk(v->name, "[{")) /* named after a view: not to be taken for it */
        ndp_str_addf(out, "#%d", number);
}

static void add_shape(const ndp_view *v, ndp_str *out) {
    ndp_str_addf(out, " [%lld,%lld] %s", (long long)v->rows, (long long)v->cols, ndp_dtype_name(v->dtype));
}

/* Adds "{name value, ...}" of the attributes that are not zero. */
static void add_attributes(const ndp_op_attr *a, ndp_str *out) {
    const struct {
        const char *name;
        double value;
    } numbers[] = {{"heads", a->heads},
                   {"kv_heads", a->kv_heads},
                   {"head_dim", a->head_dim},
                   {"rotary_dim", a->rotary_dim},
                   {"window", a->window},
                   {"scale", a->scale},
                   {"cap", a->cap},
                   {"eps", a->eps},
                   {"max_norm", a->max_norm},
                   {"vocab", (double)a->vocab},
                   {"row_blocks", (double)a->row_blocks},
                   {"row_group", (double)a->row_group},
                   {"unit_offset", a->unit_offset},
                   {"parts", a->parts},
                   {"all_parts", a->all_parts},
                   {"first", (double)a->first}};
    const struct {
        const char *name;
        bool value;
    } flags[] = {
        {"inverse", a->inverse}, {"accumulate", a->accumulate}, {"train", a->train}, {"wide_grad", a->wide_grad}};
    const char *before = "{";
    for (int i = 0; i < NDP_COUNT(numbers); i++)
        if (numbers[i].value != 0)
            ndp_str_addf(out, "%s%s %.4g", before, numbers[i].name, numbers[i].value), before = ", ";
    for (int i = 0; i < NDP_COUNT(flags); i++)
        if (flags[i].value)
            ndp_str_addf(out, "%s%s", before, flags[i].name), before = ", ";
    if (a->type != (ndp_dtype)0)
        ndp_str_addf(out, "%stype %s", before, ndp_dtype_name(a->type)), before = ", ";
    ndp_str_add(out, *before == ',' ? "}" : "");
}

static void print_node(const ndp_graph *g, const ndp_node *n, ndp_str *out) {
    ndp_str_addf(out, "  %s", n->op->name);
    if (n->op->collective != NDP_LOCAL || n->op == &ndp_op_enter)
        ndp_str_addf(out, " over %s (%d ranks)", ndp_group_name((ndp_group_kind)n->attr.group), n->attr.ranks);
    add_attributes(&n->attr, out);
    for (int k = 0; k < n->n_in; k++) {
        ndp_str_add(out, k ? ", " : ": ");
        add_label(g, n->in[k], out);
    }
    for (int k = 0; k < n->n_out; k++) {
        ndp_str_add(out, k ? ", " : " -> ");
        add_label(g, n->out[k], out);
        if (n->out[k] != NDP_NONE)
            add_shape(&g->values[n->out[k]].view, out);
    }
    ndp_str_add(out, n->op->in_place ? ", in place\n" : "\n");
}

/* Parameters, data and the input. A parameter of several glued segments has the name of the first. */
static void print_given(const ndp_graph *g, ndp_str *out) {
    for (int i = 0; i < g->n_values; i++) {
        const ndp_value *v = &g->values[i];
        bool given = v->kind == NDP_VALUE_PARAM || v->kind == NDP_VALUE_DATA || i == g->input;
        if (!given || v->root != i || first_alike(g, i) != i)
            continue;
        ndp_str_add(out, i == g->input ? "  input " : v->kind == NDP_VALUE_DATA ? "  data " : "  param ");
        add_label(g, i, out);
        add_shape(&v->view, out);
        if (v->kind == NDP_VALUE_PARAM)
            ndp_str_addf(out, " of slot %d%s", v->slot, g->frozen[v->slot] ? ", frozen" : "");
        if (v->segments > 1)
            ndp_str_addf(out, ", %d segments", v->segments);
        ndp_str_add(out, "\n");
    }
}

static void print_boundary(const ndp_graph *g, const char *what, int value, ndp_str *out) {
    if (value == NDP_NONE)
        return;
    ndp_str_addf(out, "  %s ", what);
    add_label(g, value, out);
    add_shape(&g->values[value].view, out);
    ndp_str_add(out, "\n");
}

void ndp_graph_print(const ndp_graph *g, ndp_str *out) {
    static const char *const lists[NDP_NODE_LISTS] = {"forward", "backward-input", "backward-weight"};
    ndp_str_addf(out, "graph %s: %s, weight gradients %s\n", g->name, ndp_dtype_name(g->compute),
                 ndp_dtype_name(g->grad));
    print_given(g, out);
    print_boundary(g, "output", g->output, out);
    print_boundary(g, "gradient of the output", g->grad_output, out);
    print_boundary(g, "gradient of the input", g->grad_input, out);
    for (int list = 0; list < NDP_NODE_LISTS; list++) {
        if (g->nodes[list].n == 0)
            continue;
        ndp_str_addf(out, " %s\n", lists[list]);
        for (int i = 0; i < g->nodes[list].n; i++)
            print_node(g, &g->nodes[list].items[i], out);
    }
}
