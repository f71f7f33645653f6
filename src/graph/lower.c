/* Lowering: a unit's graph becomes one flat list of calls for each phase.
 *
 *   1. homes    where each root lives, by the lists that touch it (forward, input gradients, weight gradients):
 *               boundary values in blocks of their own, values that cross phases in `saved`, `saved_in` or `between`,
 *               all others in the work memory of their phase;
 *   2. needed   which forward nodes the recompute runs: those that saved values need; a selective one copies what the
 *               forward has kept of some;
 *   3. list_*   for each phase: nodes to calls, with waits for collectives before the first call that reads their
 *               result or writes their operand; then list_work.c makes plans of kernels and places work memory.
 *
 * Invariants: operands are offsets from bases, never addresses; a begin has one wait, and the collectives of a group
 * are waited for in the order of their begins; two values of a work memory that live at the same time do not overlap.
 * step/ binds a base to a block for each run. */
#include "graph/lower.h"
#include "graph/kept.h"

#include <stdlib.h>
#include <string.h>

/* Where the storage of a root lives. */
typedef struct home {
    ndp_base base;
    size_t offset;
} home;

typedef struct lowering {
    const ndp_graph *g;
    const ndp_lower_opts *opts;
    home *homes;     /* by value: of roots */
    unsigned *uses;  /* by root: bit list: a node of that list touches it */
    bool *needed;    /* by root: the recompute makes it */
    bool *run;       /* by forward node: the recompute runs it, */
    uint32_t *kept;  /* but copies these of its parts (kept.h) */
    size_t *kept_at; /* from here on */
    ndp_unit_program *out;
} lowering;

static int root_of(const ndp_graph *g, int value) { return value == NDP_NONE ? NDP_NONE : g->values[value].root; }

/* The root of operand k of a node: of its inputs, then of its outputs. */
static int operand_root(const ndp_graph *g, const ndp_node *n, int k) {
    return root_of(g, k < n->n_in ? n->in[k] : n->out[k - n->n_in]);
}

static void note_uses(lowering *l) {
    for (int list = 0; list < NDP_NODE_LISTS; list++)
        for (int i = 0; i < l->g->nodes[list].n; i++) {
            const ndp_node *n = &l->g->nodes[list].items[i];
            for (int k = 0, root; k < n->n_in + n->n_out; k++)
                if ((root = operand_root(l->g, n, k)) != NDP_NONE)
                    l->uses[root] |= 1u << list;
        }
    for (int list = 0; list < NDP_NODE_LISTS; list++)
        for (int k = 0, root; k < l->g->nodes[list].n_repeats; k++)
            if ((root = root_of(l->g, l->g->nodes[list].repeats[k].count)) != NDP_NONE)
                l->uses[root] |= 1u << list;
}

static bool is_saved(ndp_base base) { return base == NDP_BASE_SAVED || base == NDP_BASE_SAVED_INPUT; }

static size_t append(size_t *total, size_t bytes) {
    size_t at = *total;
    *total += (bytes + 63) & ~(size_t)63;
    return at;
}

/* The home of a root that is not a boundary of the unit. */
static home home_of(const lowering *l, int root, ndp_unit_program *p) {
    const ndp_value *v = &l->g->values[root];
    unsigned forward = l->uses[root] & 1u, input_grad = l->uses[root] & 2u, weight_grad = l->uses[root] & 4u;
    if (v->kind == NDP_VALUE_PARAM || v->kind == NDP_VALUE_PGRAD)
        return (home){(ndp_base)((v->kind == NDP_VALUE_PARAM ? NDP_BASE_PARAM : NDP_BASE_PGRAD) + v->slot),
                      (size_t)v->offset * ndp_dtype_size(v->view.dtype)};
    if (v->kind == NDP_VALUE_DATA)
        return (home){NDP_BASE_DATA, 0};
    if (forward && weight_grad)
        return (home){NDP_BASE_SAVED, append(&p->saved_bytes, ndp_value_bytes(v))};
    if (forward && input_grad)
        return (home){NDP_BASE_SAVED_INPUT, append(&p->saved_input_bytes, ndp_value_bytes(v))};
    if (input_grad && weight_grad)
        return (home){NDP_BASE_BETWEEN, append(&p->between_bytes, ndp_value_bytes(v))};
    return (home){NDP_BASE_WORK, 0};
}

/* Gives every root its home. Boundary values have blocks of their own; values in work memory get their offset later,
 * phase by phase. */
static ndp_status pass_homes(lowering *l) {
    const ndp_graph *g = l->g;
    ndp_unit_program *p = l->out;
    note_uses(l);
    const int boundary[4] = {root_of(g, g->input), root_of(g, g->output), root_of(g, g->grad_output),
                             root_of(g, g->grad_input)};
    for (int v = 0; v < g->n_values; v++) {
        int b = 0;
        while (b < 4 && boundary[b] != v)
            b++;
        if (g->values[v].root == v)
            l->homes[v] = b < 4 ? (home){(ndp_base)b, 0} : home_of(l, v, p);
    }
    if (boundary[1] != NDP_NONE && (l->uses[boundary[1]] & 6u))
        return NDP_FAIL(NDP_EBUG, "unit %s: its output is used by its own backward", g->name);
    p->input_bytes = boundary[0] == NDP_NONE ? 0 : ndp_value_bytes(&g->values[boundary[0]]);
    p->grad_input_bytes = boundary[3] == NDP_NONE ? 0 : ndp_value_bytes(&g->values[boundary[3]]);
    p->output_bytes = boundary[1] == NDP_NONE ? 0 : ndp_value_bytes(&g->values[boundary[1]]);
    return NDP_OK;
}

/* Of the parts that may be kept, keeps those that the recompute needs; true if it makes no other part of the node. */
static bool keep_parts(lowering *l, int node) {
    const ndp_node *n = &l->g->nodes[NDP_NODES_FORWARD].items[node];
    ndp_kept_part parts[NDP_MOST_PARTS];
    int count = ndp_kept_parts(l->g, n, parts);
    bool whole = true;
    for (int k = 0; k < count; k++) {
        bool needed = n->out[parts[k].out] != NDP_NONE && l->needed[root_of(l->g, n->out[parts[k].out])];
        l->kept[node] &= needed ? ~0u : ~(1u << k);
        whole &= !needed || l->kept[node] >> k & 1;
    }
    l->kept_at[node] = l->out->kept_bytes;
    for (int k = 0; k < count; k++)
        if (l->kept[node] >> k & 1) {
            ndp_view v = l->g->values[n->out[parts[k].out]].view;
            append(&l->out->kept_bytes, (size_t)(v.rows * parts[k].cols) * ndp_dtype_size(v.dtype));
        }
    return whole;
}

/* Of a node that the recompute does not run: what was in these values before is not needed. */
static void restore(lowering *l, const ndp_node *n) {
    for (int k = 0; k < n->n_out; k++) {
        const ndp_value *v = n->out[k] == NDP_NONE ? NULL : &l->g->values[n->out[k]];
        const ndp_view *all = v ? &l->g->values[v->root].view : NULL;
        if (v && v->row == 0 && v->col == 0 && v->view.rows == all->rows && v->view.cols == all->cols)
            l->needed[v->root] = false;
    }
}

/* What the recompute must run: nodes that make saved values, and what these need. */
static ndp_status pass_needed(lowering *l) {
    const ndp_nodes *nodes = &l->g->nodes[NDP_NODES_FORWARD];
    if (l->opts->selective)
        ndp_kept_choose(l->g, l->kept);
    for (int v = 0; v < l->g->n_values; v++)
        l->needed[v] = l->g->values[v].root == v && is_saved(l->homes[v].base);
    for (int i = nodes->n - 1; i >= 0; i--) {
        const ndp_node *n = &nodes->items[i];
        for (int k = 0; k < n->n_out; k++)
            l->run[i] |= n->out[k] != NDP_NONE && l->needed[root_of(l->g, n->out[k])];
        bool kept = l->kept[i] && keep_parts(l, i);
        if (kept)
            restore(l, n);
        for (int k = 0; l->run[i] && !kept && k < n->n_in; k++)
            if (n->in[k] != NDP_NONE)
                l->needed[root_of(l->g, n->in[k])] = true;
    }
    return NDP_OK;
}

static ndp_operand make_operand(const lowering *l, int value, bool drop) {
    if (value == NDP_NONE)
        return (ndp_operand){.base = NDP_NONE, .value = NDP_NONE};
    const ndp_value *v = &l->g->values[value];
    home h = l->homes[v->root];
    if (drop && is_saved(h.base))
        h = (home){NDP_BASE_WORK, 0};
    h.offset += (size_t)(v->row * v->view.ld + v->col) * ndp_dtype_size(v->view.dtype);
    int base = (int)h.base + (h.base == NDP_BASE_DATA ? l->g->values[v->root].input : 0);
    return (ndp_operand){.base = base, .offset = h.offset, .view = v->view, .value = value};
}

static int note_pgrad(ndp_list *list, const ndp_value *v) {
    for (int i = 0; i < list->n_pgrads; i++)
        if (list->pgrads[i].slot == v->slot && list->pgrads[i].segment == v->segment)
            return i;
    if (list->n_pgrads == NDP_MAX_PGRADS)
        return NDP_NONE;
    list->pgrads[list->n_pgrads] = (ndp_pgrad){v->slot, v->segment, v->segments};
    return list->n_pgrads++;
}

static void note_call(const lowering *l, ndp_list *list, ndp_call *call) {
    for (int k = 0; k < call->n_in + call->n_out; k++) {
        int base = ndp_call_operand(call, k)->base;
        list->bases |= base == NDP_NONE ? 0 : (uint64_t)1 << base;
    }
    call->pgrad = NDP_NONE;
    for (int k = 0; k < call->n_out; k++)
        if (call->out[k].value != NDP_NONE && l->g->values[call->out[k].value].kind == NDP_VALUE_PGRAD) {
            int before = list->n_pgrads, p = note_pgrad(list, &l->g->values[call->out[k].value]);
            if (p != NDP_NONE && p < before) /* written by an earlier call of this list */
                call->attr.accumulate = true;
            else
                call->pgrad = p;
        }
    list->flops += call->flops;
}

static bool is_waiting(const ndp_call *c) { return c->kind == NDP_CALL_BEGIN && c->partner == NDP_NONE; }

/* Waits for the collectives begun up to call `last` that are still under way; of `group` alone, or of all (NULL). */
static void wait_through(ndp_list *list, int last, const int *group) {
    for (int i = list->oldest; i <= last && list->waiting > 0; i++) {
        ndp_call *begin = &list->calls[i];
        if (!is_waiting(begin) || (group && begin->attr.group != *group))
            continue;
        list->waiting--;
        begin->partner = list->n;
        ndp_call *wait = &list->calls[list->n++];
        *wait = *begin;
        wait->kind = NDP_CALL_WAIT, wait->partner = i;
        wait->flops = wait->bytes = 0;
    }
    while (list->waiting > 0 && !is_waiting(&list->calls[list->oldest]))
        list->oldest++;
}

/* True when the node uses what the collective makes, or writes what it reads. */
static bool depends(const lowering *l, const ndp_node *n, const ndp_call *begin) {
    int made = root_of(l->g, begin->out[0].value), read = root_of(l->g, begin->in[0].value);
    bool found = false;
    for (int k = 0; k < n->n_in + n->n_out; k++) {
        int root = operand_root(l->g, n, k);
        found |= root == made || (root == read && root != NDP_NONE && k >= n->n_in);
    }
    return found;
}

static void wait_for_operands(const lowering *l, ndp_list *list, const ndp_node *n) {
    for (int i = list->n - 1; i >= list->oldest && list->waiting > 0; i--) {
        const ndp_call *c = &list->calls[i];
        if (is_waiting(c) && depends(l, n, c))
            wait_through(list, i, &c->attr.group);
    }
}

/* An operand of a range, which no call need name. */
static ndp_operand range_operand(const lowering *l, int value, bool drop, ndp_list *list) {
    ndp_operand o = make_operand(l, value, drop);
    list->bases |= o.base == NDP_NONE ? 0 : (uint64_t)1 << o.base;
    return o;
}

/* Ends the range. A phase that runs none of its nodes has no such range. */
static void end_range(ndp_list *list) {
    ndp_repeat *made = &list->repeats.items[list->repeats.n - 1];
    made->n = list->n - made->first;
    for (int c = made->first; c < list->n; c++)
        list->flops += (double)(ndp_repeats_times(&list->repeats, c) - 1) * list->calls[c].flops;
    list->repeats.n -= made->n == 0;
}

/* Begins or ends the range that has its border before node `i`. What communicates in a range is waited for in it. */
static void border(const lowering *l, const ndp_nodes *nodes, int i, bool drop, ndp_list *list) {
    for (int k = 0; k < nodes->n_repeats; k++) {
        const ndp_node_repeat *r = &nodes->repeats[k];
        if (i == r->first || i == r->first + r->n)
            wait_through(list, list->n - 1, NULL);
        if (i == r->first) {
            list->counts[list->repeats.n] = range_operand(l, r->count, drop, list);
            list->indices[list->repeats.n] = range_operand(l, r->index, drop, list);
            list->repeats.items[list->repeats.n++] = (ndp_repeat){list->n, 0, r->times, 0, r->count != NDP_NONE};
        }
        if (i == r->first + r->n)
            end_range(list);
    }
}

/* ---- lists ---- */

static ndp_status add_call(const lowering *l, ndp_list *list, const ndp_node *n, const ndp_op *op,
                           const ndp_op_attr *attr, const ndp_operand *in, int n_in, const ndp_operand *out,
                           int n_out) {
    ndp_call *c = &list->calls[list->n++];
    NDP_TRY(ndp_call_init(c, &list->arena, op, attr, in, n_in, out, n_out));
    c->of = n->of;
    NDP_TRY(ndp_call_find_kernel(c, l->opts->exec->device));
    const ndp_view *read = &c->in[0].view, *made = &c->out[0].view;
    if (c->kind != NDP_CALL_KERNEL && (read->ld != read->cols || made->ld != made->cols))
        return NDP_FAIL(NDP_EBUG, "unit %s: an operand of %s is not contiguous", l->g->name, c->op->name);
    if (c->kind != NDP_CALL_KERNEL)
        c->what = l->g->values[c->in[0].value].name;
    if (c->kind == NDP_CALL_BEGIN)
        list->oldest = list->waiting++ ? list->oldest : (int)(c - list->calls);
    note_call(l, list, c);
    return NDP_OK;
}

static void take_columns(ndp_operand *o, int64_t col, int64_t cols) {
    o->offset += (size_t)col * ndp_dtype_size(o->view.dtype);
    o->view.cols = cols;
}

/* `end` > 0: only columns [col, end) of the product of glued matrices. */
static ndp_status run_node(const lowering *l, const ndp_node *n, bool drop, int64_t col, int64_t end, ndp_list *list) {
    ndp_operand in[NDP_OP_MAX_IN], out[NDP_OP_MAX_OUT];
    for (int k = 0; k < n->n_in; k++)
        in[k] = make_operand(l, n->in[k], drop);
    for (int k = 0; k < n->n_out; k++)
        out[k] = make_operand(l, n->out[k], drop);
    if (end > 0) {
        in[1].offset += (size_t)(col * in[1].view.ld) * ndp_dtype_size(in[1].view.dtype);
        in[1].view.rows = end - col;
        if (n->n_in > 2 && in[2].base != NDP_NONE)
            take_columns(&in[2], col, end - col);
        take_columns(&out[0], col, end - col);
    }
    return add_call(l, list, n, n->op, &n->attr, in, n->n_in, out, n->n_out);
}

/* Copies what is kept of a node, out of its results or `again` to where they are. */
static ndp_status copy_kept(const lowering *l, int node, bool again, ndp_list *list) {
    const ndp_node *n = &l->g->nodes[NDP_NODES_FORWARD].items[node];
    ndp_kept_part parts[NDP_MOST_PARTS];
    size_t at = l->kept_at[node];
    int count = ndp_kept_parts(l->g, n, parts);
    for (int k = 0; k < count; k++) {
        if (!(l->kept[node] >> k & 1))
            continue;
        int value = n->out[parts[k].out];
        ndp_operand made = make_operand(l, value, !again), kept = made;
        take_columns(&made, parts[k].col, parts[k].cols);
        kept = (ndp_operand){.base = NDP_BASE_KEPT, .offset = at, .view = made.view, .value = value};
        kept.view.ld = kept.view.cols;
        append(&at, (size_t)(kept.view.rows * kept.view.cols) * ndp_dtype_size(kept.view.dtype));
        wait_for_operands(l, list, &(ndp_node){.in = {value}, .n_in = 1});
        NDP_TRY(add_call(l, list, n, &ndp_op_copy, &(ndp_op_attr){.type = made.view.dtype}, again ? &kept : &made, 1,
                         again ? &made : &kept, 1));
    }
    return NDP_OK;
}

/* A node of which some is kept: copies that, and makes the other columns, those side by side at once. */
static ndp_status remake_node(const lowering *l, int node, ndp_list *list) {
    const ndp_node *n = &l->g->nodes[NDP_NODES_FORWARD].items[node];
    ndp_kept_part parts[NDP_MOST_PARTS];
    int count = ndp_kept_parts(l->g, n, parts);
    NDP_TRY(copy_kept(l, node, true, list));
    for (int k = 0, end; k < count && n->op == &ndp_op_linear; k = end + 1) {
        for (end = k; end < count && !(l->kept[node] >> end & 1);)
            end++;
        if (end > k)
            NDP_TRY(run_node(l, n, false, parts[k].col, parts[end - 1].col + parts[end - 1].cols, list));
    }
    return NDP_OK;
}

/* A collective is two calls; a part that is kept is one more, in a recompute at most two. */
static int most_calls(const lowering *l, const ndp_nodes *nodes) {
    int most = 2 * nodes->n + 1;
    for (int i = 0; i < l->g->nodes[NDP_NODES_FORWARD].n; i++)
        most += 2 * __builtin_popcount(l->kept[i]);
    return most;
}

static ndp_status lower_list(const lowering *l, ndp_node_list from, bool again, bool drop, ndp_list *list) {
    const ndp_nodes *nodes = &l->g->nodes[from];
    size_t repeats = (size_t)nodes->n_repeats + 1;
    list->calls = calloc((size_t)most_calls(l, nodes), sizeof *list->calls);
    list->repeats.items = ndp_arena_alloc(&list->arena, repeats * sizeof *list->repeats.items);
    list->counts = ndp_arena_alloc(&list->arena, repeats * sizeof *list->counts);
    list->indices = ndp_arena_alloc(&list->arena, repeats * sizeof *list->indices);
    if (!list->calls || !list->repeats.items || !list->counts || !list->indices)
        return NDP_FAIL(NDP_ENOMEM, "unit %s: not enough memory for its program", l->g->name);
    for (int i = 0; i < nodes->n; i++) {
        const ndp_node *n = &nodes->items[i];
        border(l, nodes, i, drop, list);
        if ((again && !l->run[i]) || ndp_op_kinds[n->op->id] == NDP_KIND_MARK)
            continue;
        wait_for_operands(l, list, n);
        NDP_TRY(again && l->kept[i] ? remake_node(l, i, list) : run_node(l, n, drop, 0, 0, list));
        if (drop && l->kept[i])
            NDP_TRY(copy_kept(l, i, false, list));
    }
    border(l, nodes, nodes->n, drop, list);
    wait_through(list, list->n - 1, NULL);
    return l->opts->costs ? NDP_OK : ndp_list_finish(l->g, l->opts->exec, list);
}

/* The passes of a unit, which run always. */
static ndp_status run_passes(lowering *l) {
    static ndp_status (*const marks[])(lowering *) = {pass_homes, pass_needed};
    static const ndp_node_list from[NDP_PHASES] = {
        [NDP_BACKWARD_INPUT] = NDP_NODES_INPUT_GRAD, [NDP_BACKWARD_WEIGHT] = NDP_NODES_WEIGHT_GRAD};
    _Static_assert(NDP_PASS_list_backward_weight - NDP_PASS_list_forward == (int)NDP_BACKWARD_WEIGHT,
                   "a pass lists each phase, in their order");
    for (int i = 0; i < NDP_COUNT(marks); i++) {
        NDP_TRY(marks[i](l));
        ndp_pass_note(&l->out->passes, NDP_PASS_homes + i, NDP_PASS_homes, 0);
    }
    for (int phase = 0; phase < NDP_PHASES; phase++) {
        ndp_list *list = &l->out->lists[phase];
        NDP_TRY(lower_list(l, from[phase], phase == NDP_RECOMPUTE, phase == NDP_FORWARD_DROP, list));
        ndp_pass_note(&l->out->passes, NDP_PASS_list_forward + phase, NDP_PASS_homes, list->n);
    }
    return NDP_OK;
}

ndp_status ndp_lower(const ndp_graph *g, const ndp_lower_opts *opts, ndp_unit_program *out) {
    NDP_TRY(g->status);
    *out = (ndp_unit_program){.graph = g};
    size_t n = (size_t)g->n_values + 1, forward = (size_t)g->nodes[NDP_NODES_FORWARD].n + 1;
    ndp_arena arena = {0};
    lowering l = {.g = g,
                  .opts = opts,
                  .out = out,
                  .homes = ndp_arena_alloc(&arena, n * sizeof *l.homes),
                  .uses = ndp_arena_alloc(&arena, n * sizeof *l.uses),
                  .needed = ndp_arena_alloc(&arena, n * sizeof *l.needed),
                  .run = ndp_arena_alloc(&arena, forward * sizeof *l.run),
                  .kept = ndp_arena_alloc(&arena, forward * sizeof *l.kept),
                  .kept_at = ndp_arena_alloc(&arena, forward * sizeof *l.kept_at)};
    bool fits = l.homes && l.uses && l.needed && l.run && l.kept && l.kept_at;
    ndp_status st = fits ? run_passes(&l) : NDP_FAIL(NDP_ENOMEM, "unit %s: not enough memory to lower it", g->name);
    ndp_arena_release(&arena);
    if (st != NDP_OK)
        ndp_unit_program_release(out);
    return st;
}
