/* What the kernels of a list need before it runs: plans, and work memory. In work memory each root that lives there
 * has an interval from the first call that touches it to the last, and each call one for its scratch; what a range of
 * repeated calls reads and did not make lives to the range's end. */
#include "graph/intervals.h"
#include "graph/lower.h"

#include <stdlib.h>

static ndp_op_call shapes_of(const ndp_exec *exec, const ndp_call *c, const ndp_op_attr *attr) {
    ndp_op_call shapes = {
        .op = c->op, .attr = attr, .exec = exec, .plan = c->plan[attr->accumulate && c->pgrad != NDP_NONE]};
    for (int k = 0; k < c->n_in; k++)
        shapes.in[k] = c->in[k].view;
    for (int k = 0; k < c->n_out; k++)
        shapes.out[k] = c->out[k].view;
    return shapes;
}

/* Plans and scratch of both ways of a call that may add to a parameter gradient; *scratch: enough for both. */
static ndp_status prepare_call(const ndp_exec *exec, ndp_call *c, size_t *scratch) {
    *scratch = 0;
    for (int add = 0; c->kernel && add <= (c->pgrad != NDP_NONE); add++) {
        ndp_op_attr attr = c->attr;
        attr.accumulate |= add;
        ndp_op_call shapes = shapes_of(exec, c, &attr);
        if (c->kernel->prepare && exec->device->executes) {
            NDP_TRY(c->kernel->prepare(&shapes));
            c->plan[add] = shapes.plan;
        }
        size_t bytes = c->kernel->scratch ? c->kernel->scratch(&shapes) : 0;
        *scratch = bytes > *scratch ? bytes : *scratch;
    }
    return NDP_OK;
}

/* Intervals of the work memory of one list. */
typedef struct work {
    const ndp_graph *g;
    ndp_interval *items;
    int n, *of_root, *of_call;
} work;

/* The interval of an operand; NULL: it lives elsewhere. */
static ndp_interval *interval_of(const work *w, const ndp_operand *o) {
    int i = o->base == NDP_BASE_WORK ? w->of_root[w->g->values[o->value].root] : NDP_NONE;
    return i == NDP_NONE ? NULL : &w->items[i];
}

static void note_operand(work *w, const ndp_operand *o, int at) {
    if (o->base != NDP_BASE_WORK)
        return;
    int root = w->g->values[o->value].root;
    if (w->of_root[root] < 0) {
        w->of_root[root] = w->n;
        w->items[w->n++] = (ndp_interval){ndp_value_bytes(&w->g->values[root]), {at, at, 0, 0}, 0};
    }
    w->items[w->of_root[root]].life.last = at;
}

static void live_through(work *w, const ndp_repeats *r) {
    for (int k = 0; k < r->n; k++) {
        int first = r->items[k].first, last = first + r->items[k].n - 1;
        for (int i = 0; i < w->n; i++) {
            ndp_life *x = &w->items[i].life;
            if (x->first < first && x->last >= first && x->last < last)
                x->last = last;
        }
    }
}

/* Fills the intervals, and prepares the kernels. */
static ndp_status note_calls(work *w, const ndp_exec *exec, ndp_list *list) {
    for (int i = 0; i < list->n; i++) {
        ndp_call *c = &list->calls[i];
        size_t scratch;
        for (int k = 0; k < c->n_in + c->n_out; k++)
            note_operand(w, ndp_call_operand(c, k), i);
        NDP_TRY(prepare_call(exec, c, &scratch));
        w->of_call[i] = w->n;
        w->items[w->n++] = (ndp_interval){scratch, {i, i, 0, 0}, 0};
    }
    for (int k = 0; k < list->repeats.n; k++) { /* a count is read where its range begins */
        const ndp_repeat *r = &list->repeats.items[k];
        if (interval_of(w, &list->counts[k]))
            interval_of(w, &list->counts[k])->life.last = r->first;
        if (interval_of(w, &list->indices[k]))
            interval_of(w, &list->indices[k])->life = (ndp_life){r->first, r->first + r->n - 1, 0, 0};
    }
    live_through(w, &list->repeats);
    return NDP_OK;
}

static void move(const work *w, ndp_operand *o) {
    const ndp_interval *in = interval_of(w, o);
    o->offset += in ? in->offset : 0;
}

/* Tells the calls where their intervals are. */
static void place_calls(const work *w, ndp_list *list) {
    for (int i = 0; i < list->n; i++) {
        ndp_call *c = &list->calls[i];
        c->scratch = NDP_BASE_WORK;
        c->scratch_offset = w->items[w->of_call[i]].offset;
        for (int k = 0; c->kind != NDP_CALL_WAIT && k < c->n_in + c->n_out; k++)
            move(w, ndp_call_operand(c, k));
    }
    for (int k = 0; k < list->repeats.n; k++)
        move(w, &list->counts[k]), move(w, &list->indices[k]);
}

ndp_status ndp_list_finish(const ndp_graph *g, const ndp_exec *exec, ndp_list *list) {
    size_t roots = (size_t)g->n_values + 1, calls = (size_t)list->n + 1;
    work w = {.g = g,
              .items = calloc(roots + calls, sizeof *w.items),
              .of_root = malloc(roots * sizeof *w.of_root),
              .of_call = calloc(calls, sizeof *w.of_call)};
    ndp_status st = w.items && w.of_root && w.of_call
                        ? NDP_OK
                        : NDP_FAIL(NDP_ENOMEM, "unit %s: not enough memory to plan", g->name);
    for (int v = 0; st == NDP_OK && v < g->n_values; v++)
        w.of_root[v] = NDP_NONE;
    if (st == NDP_OK)
        st = note_calls(&w, exec, list);
    if (st == NDP_OK)
        st = ndp_intervals_place(w.items, w.n, 0, &list->work_bytes);
    if (st == NDP_OK)
        place_calls(&w, list);
    free(w.items);
    free(w.of_root);
    free(w.of_call);
    return st;
}

void ndp_unit_program_release(ndp_unit_program *p) {
    for (int i = 0; i < NDP_PHASES; i++) {
        free(p->lists[i].calls);
        ndp_arena_release(&p->lists[i].arena);
    }
    *p = (ndp_unit_program){0};
}
