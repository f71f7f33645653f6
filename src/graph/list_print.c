/* Lists of unit programs as text, for `plan --program` and the golden files of tests. */
#include "graph/lower.h"
#include "mesh/mesh.h"

#include <string.h>

const char *ndp_phase_name(ndp_phase phase) {
    static const char *const names[] = {"forward", "forward-drop", "recompute", "backward-input", "backward-weight"};
    return names[phase];
}

const char *ndp_base_name(int base) {
    static const char *const names[NDP_BASE_DATA] = {"x",      "y",       "dy",     "dx",     "saved",  "saved_in",
                                                     "kept",   "between", "work",   "param0", "param1", "param2",
                                                     "param3", "param4",  "param5", "param6", "grad0",  "grad1",
                                                     "grad2",  "grad3",   "grad4",  "grad5",  "grad6"};
    _Static_assert(NDP_SLOTS == 7, "a name for each slot, twice");
    return base == NDP_NONE ? "-" : base >= NDP_BASE_DATA ? "data" : names[base];
}

static void print_operand(const ndp_graph *g, const ndp_operand *o, ndp_str *out) {
    if (o->base == NDP_NONE) {
        ndp_str_add(out, " -");
        return;
    }
    const ndp_value *v = &g->values[o->value];
    ndp_str_addf(out, " %s[%lld,%lld]@%s", v->name, (long long)o->view.rows, (long long)o->view.cols,
                 ndp_base_name(o->base));
    if (o->base < NDP_BASE_DATA)
        ndp_str_addf(out, "+%zu", o->offset);
}

static void print_group(const ndp_call *c, const ndp_mesh *mesh, ndp_str *out) {
    char bytes[16];
    const ndp_view *v = &c->in[0].view;
    ndp_group g = ndp_mesh_group(mesh, (ndp_group_kind)c->attr.group);
    ndp_str_addf(out, " over %s (%d ranks, base %d, stride %d) %s", ndp_group_name((ndp_group_kind)c->attr.group),
                 g.count, g.base, g.stride,
                 ndp_human_bytes((double)(v->rows * v->cols) * (double)ndp_dtype_size(v->dtype), bytes));
}

/* Before the first call of a range. */
static void print_repeat(const ndp_graph *g, const ndp_list *list, int call, ndp_str *out) {
    for (int k = 0; k < list->repeats.n; k++) {
        const ndp_repeat *r = &list->repeats.items[k];
        if (r->first != call)
            continue;
        ndp_str_addf(out, "  .%d to .%d x %s%lld", r->first, r->first + r->n - 1,
                     list->counts[k].base == NDP_NONE ? "" : "at most ", (long long)r->times);
        if (list->counts[k].base != NDP_NONE)
            print_operand(g, &list->counts[k], out);
        ndp_str_add(out, "\n");
    }
}

void ndp_list_print(const ndp_unit_program *u, ndp_phase phase, const ndp_mesh *mesh, ndp_str *out) {
    const ndp_list *list = &u->lists[phase];
    if (list->n == 0)
        return;
    ndp_str_addf(out, "unit program %s %s: %d calls, %.3g Gflop, work %zu bytes\n", u->graph->name,
                 ndp_phase_name(phase), list->n, list->flops * 1e-9, list->work_bytes);
    for (int i = 0; i < list->n; i++) {
        const ndp_call *c = &list->calls[i];
        print_repeat(u->graph, list, i, out);
        ndp_str_addf(out, "  .%d ", i);
        if (c->kind == NDP_CALL_WAIT) {
            ndp_str_addf(out, "wait %s of .%d\n", c->op->name, c->partner);
            continue;
        }
        ndp_str_addf(out, "%s%s", c->kind == NDP_CALL_BEGIN ? "begin " : "", c->op->name);
        if (c->kind == NDP_CALL_BEGIN)
            print_group(c, mesh, out);
        ndp_str_add(out, ":");
        for (int k = 0; k < c->n_in; k++)
            print_operand(u->graph, &c->in[k], out);
        ndp_str_add(out, " ->");
        for (int k = 0; k < c->n_out; k++)
            print_operand(u->graph, &c->out[k], out);
        ndp_str_add(out, "\n");
    }
}
