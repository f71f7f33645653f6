/* Listing all mutations of a program, from what is in its lists. */
#include "placement/mutations.h"

#include <stdlib.h>
#include <string.h>

/* A list that is searched: a unit's phase, or the program (graph NDP_NONE). */
typedef struct source {
    const ndp_program *p;
    int graph;
    ndp_phase phase;
    const ndp_list *list;
    mutations *out;
} source;

static const ndp_call *call_at(const source *s, int i) {
    if (s->list)
        return &s->list->calls[i];
    const ndp_instr *in = &s->p->instrs[i];
    return in->code == NDP_DO_CALL ? &in->call : NULL;
}

static int length(const source *s) { return s->list ? s->list->n : s->p->n; }

static mutation_site site(const source *s, int i) { return mutation_site_of(s->p, s->graph, s->phase, i); }

static void add(const source *s, mutation m) {
    if (ndp_array_reserve(&s->out->items, &s->out->capacity, s->out->n + 1, sizeof *s->out->items) != NDP_OK)
        abort();
    s->out->items[s->out->n++] = m;
}

/* At entry i; on all ranks if its group spans pp. */
static mutation of(const source *s, mutation_kind kind, int i) {
    const ndp_call *c = call_at(s, i);
    bool all = c && c->kind != NDP_CALL_KERNEL && ndp_group_spans(ndp_channel_group(c->channel), NDP_PP);
    return (mutation){.kind = kind,
                      .pp = all ? NDP_NONE : s->p->opts.step.mesh.coord[NDP_PP],
                      .site = site(s, i),
                      .other = {.graph = NDP_NONE}};
}

static void add_which(const source *s, mutation_kind kind, int i, int which, int to) {
    mutation m = of(s, kind, i);
    m.which = which, m.to = to;
    add(s, m);
}

static void add_other(const source *s, mutation_kind kind, int i, int other, int which, int to) {
    mutation m = of(s, kind, i);
    m.other = site(s, other), m.which = which, m.to = to;
    add(s, m);
}

/* ---- order ---- */

static bool touches(const ndp_operand *x, int n, const ndp_operand *of_call) {
    bool any = false;
    for (int k = 0; k < n; k++)
        any = any || mutation_overlap(&x[k], of_call);
    return any;
}

/* True if entry i writes (or reads) the operand's memory; a RUN is asked for its blocks. */
static bool uses(const source *s, int i, const ndp_operand *x, bool writes) {
    const ndp_call *c = call_at(s, i);
    if (c)
        return c->kind != NDP_CALL_WAIT && (writes ? touches(c->out, c->n_out, x) : touches(c->in, c->n_in, x));
    const ndp_instr *in = &s->p->instrs[i];
    static const int written[] = {NDP_BASE_OUTPUT,    NDP_BASE_GRAD_INPUT, NDP_BASE_PGRAD,
                                  NDP_BASE_PGRAD + 1, NDP_BASE_PGRAD + 2,  NDP_BASE_PGRAD + 3};
    static const int read[] = {NDP_BASE_INPUT,     NDP_BASE_GRAD_OUTPUT, NDP_BASE_PARAM,
                               NDP_BASE_PARAM + 1, NDP_BASE_PARAM + 2,   NDP_BASE_PARAM + 3};
    for (int k = 0; k < 6; k++)
        if (in->bases[writes ? written[k] : read[k]] == x->base && x->base != NDP_NONE)
            return true;
    return false;
}

/* Before the last entry that writes what entry i reads; and after the first one that reads what it writes. */
static void add_moves(const source *s, int i) {
    const ndp_call *c = call_at(s, i);
    for (int k = 0; k < c->n_in; k++) {
        int w = i - 1;
        while (w >= 0 && !uses(s, w, &c->in[k], true))
            w--;
        if (w >= 0 && c->in[k].base != NDP_NONE)
            add_other(s, MUTATION_EARLY, i, w, k, 0);
    }
    for (int k = 0; c->kind == NDP_CALL_BEGIN && k < c->n_out; k++) {
        int r = c->partner + 1;
        while (r < length(s) && !uses(s, r, &c->out[k], false))
            r++;
        if (r < length(s))
            add_other(s, MUTATION_LATE, i, r, k, 0);
    }
}

/* ---- collectives ---- */

static void add_groups(const source *s, int i) {
    const ndp_call *c = call_at(s, i);
    const ndp_mesh *mesh = &s->p->opts.step.mesh;
    ndp_group mine = ndp_mesh_group(mesh, (ndp_group_kind)c->attr.group);
    for (int kind = 0; kind < NDP_GROUPS; kind++) {
        ndp_group g = ndp_mesh_group(mesh, (ndp_group_kind)kind);
        if (g.count == mine.count && (g.stride != mine.stride || g.base != mine.base))
            add_which(s, MUTATION_GROUP, i, kind, 0);
    }
}

static void add_collective(const source *s, int i) {
    const ndp_call *c = call_at(s, i);
    bool in_place = c->op == &ndp_op_all_reduce || c->in_place;
    add_which(s, MUTATION_DROPPED, i, 0, 0);
    if (!in_place)
        add_which(s, MUTATION_REMOVED, i, 0, 0);
    if (c->op == &ndp_op_all_reduce || c->attr.accumulate)
        add_which(s, MUTATION_TWICE, i, 0, 0);
    if (c->op == &ndp_op_reduce_scatter)
        add_which(s, MUTATION_ACCUMULATE, i, 0, 0);
    if (c->op == &ndp_op_all_to_all_rows)
        add_which(s, MUTATION_NUMBER, i, NDP_ATTR_inverse, 0);
    if (c->op == &ndp_op_all_to_all)
        add_which(s, MUTATION_OP, i, NDP_OP_shift, 0);
    if (c->op == &ndp_op_shift && c->in[0].view.rows % c->attr.ranks == 0)
        add_which(s, MUTATION_OP, i, NDP_OP_all_to_all, 0);
    if (c->op == &ndp_op_all_reduce && (c->in[0].view.rows > 1 || c->in[0].view.cols > 1))
        add_which(s, MUTATION_PART, i, 0, 0);
    add_groups(s, i);
    add_moves(s, i);
}

/* The next message of the same kind and stage: of another micro-batch. */
static void add_message(const source *s, int i) {
    const ndp_instr *in = &s->p->instrs[i];
    add_which(s, MUTATION_DROPPED, i, 0, 0);
    add_moves(s, i);
    for (int k = i + 1; k < s->p->n; k++) {
        const ndp_instr *other = &s->p->instrs[k];
        if (ndp_instr_is(other, NDP_CALL_BEGIN) && other->call.op == in->call.op && other->role == in->role &&
            in->call.op == &ndp_op_send) {
            mutation m = of(s, MUTATION_MESSAGE, i);
            m.pp = s->p->opts.step.mesh.coord[NDP_PP];
            m.other = site(s, k);
            add(s, m);
            return;
        }
    }
}

/* ---- kernels ---- */

static bool same_view(const ndp_operand *a, const ndp_operand *b) {
    return a->view.rows == b->view.rows && a->view.cols == b->view.cols && a->view.dtype == b->view.dtype &&
           a->base != NDP_NONE && (a->base != b->base || a->offset != b->offset);
}

/* The nearest other operands of the same shape as in[k], before and after the call. */
static void add_operands(const source *s, int i, int k) {
    enum { MOST = 2 };
    const ndp_operand *x = &call_at(s, i)->in[k];
    int found = 0;
    for (int step = -1; step <= 1; step += 2)
        for (int at = i + step; at >= 0 && at < length(s) && found < (step < 0 ? MOST : MOST + 1); at += step) {
            const ndp_call *c = call_at(s, at);
            for (int o = 0; c && c->kind != NDP_CALL_WAIT && o < c->n_in + c->n_out; o++) {
                const ndp_operand *y = o < c->n_in ? &c->in[o] : &c->out[o - c->n_in];
                bool made_later = step > 0 && (o >= c->n_in || (s->list && y->base == NDP_BASE_WORK));
                if (!made_later && same_view(y, x)) {
                    add_other(s, MUTATION_OPERAND, i, at, k, o);
                    found++;
                    break;
                }
            }
        }
}

static void add_ops(const source *s, int i) {
    static const struct {
        const ndp_op *op;
        ndp_op_id other;
    } alike[] = {{&ndp_op_swiglu, NDP_OP_geglu},         {&ndp_op_geglu, NDP_OP_swiglu},
                 {&ndp_op_swiglu_bwd, NDP_OP_geglu_bwd}, {&ndp_op_geglu_bwd, NDP_OP_swiglu_bwd},
                 {&ndp_op_adamw, NDP_OP_lion},           {&ndp_op_adamw, NDP_OP_sgd}};
    const ndp_call *c = call_at(s, i);
    for (size_t k = 0; k < sizeof alike / sizeof *alike; k++)
        if (alike[k].op == c->op)
            add_which(s, MUTATION_OP, i, (int)alike[k].other, 0);
    for (int k = 0; c->op == &ndp_op_add && k < 2; k++)
        add_which(s, MUTATION_OP, i, NDP_OP_copy, k);
}

static bool may_add(const ndp_call *c) {
    return c->attr.accumulate || c->op == &ndp_op_square_sum || c->op == &ndp_op_reduce_sum;
}

static void add_kernel(const source *s, int i) {
    const ndp_call *c = call_at(s, i);
    add_which(s, MUTATION_SKIPPED, i, 0, 0);
    if ((c->op->in_place && c->op != &ndp_op_zero) || may_add(c) || c->pgrad != NDP_NONE)
        add_which(s, MUTATION_TWICE, i, 0, 0);
    if (may_add(c) && c->pgrad == NDP_NONE)
        add_which(s, MUTATION_ACCUMULATE, i, 0, 0);
    for (int k = 0; k < c->n_in; k++) {
        if (c->in[k].base == NDP_NONE)
            continue;
        if (c->op->optional_in >> k & 1u)
            add_which(s, MUTATION_ABSENT, i, k, 0);
        if (c->in[k].offset > 0 && c->in[k].view.rows > 1)
            add_which(s, MUTATION_SHIFTED, i, k, 0);
        add_operands(s, i, k);
    }
    for (int a = 0; a < 64; a++)
        for (int v = 0; c->op->reads >> a & 1u && v < mutation_variants(&c->attr, a); v++)
            add_which(s, MUTATION_NUMBER, i, a, v);
    add_ops(s, i);
    add_moves(s, i);
}

/* ---- places in pinned memory ---- */

/* The begins that come before the wait of begin i. */
static void add_places(const source *s, int i) {
    const ndp_call *c = call_at(s, i);
    if (!c || c->kind != NDP_CALL_BEGIN)
        return;
    for (int k = i + 1; k < c->partner; k++)
        if (call_at(s, k) && call_at(s, k)->kind == NDP_CALL_BEGIN)
            add_other(s, MUTATION_STAGED, i, k, 0, 0);
}

static void add_ranges(const source *s, int i) {
    enum { WAYS = 7 };
    for (int k = 0; s->list && k < s->list->repeats.n; k++)
        for (int way = 0; s->list->repeats.items[k].first == i && way < WAYS; way++)
            add_which(s, MUTATION_RANGE, i, way, 0);
}

static void add_call(const source *s, int i) {
    const ndp_call *c = call_at(s, i);
    if (s->p->staging.bytes == 0)
        add_ranges(s, i);
    if (s->p->staging.bytes > 0)
        add_places(s, i);
    else if (c->kind == NDP_CALL_KERNEL)
        add_kernel(s, i);
    else if (c->kind == NDP_CALL_BEGIN && (c->op == &ndp_op_send || c->op == &ndp_op_recv))
        add_message(s, i);
    else if (c->kind == NDP_CALL_BEGIN)
        add_collective(s, i);
}

/* ---- runs ---- */

static bool reads_batch(const source *s, const ndp_list *list) {
    const ndp_inputs *inputs = s->p->opts.model->inputs;
    bool any = false;
    for (int i = 0; i < inputs->n; i++)
        any |= ndp_input_is_of_batch(inputs->items[i].kind) && ndp_list_names(list, NDP_BASE_DATA + i);
    return any;
}

/* The nearest runs of the same list that have another block there, on both sides. */
static void add_blocks(const source *s, int i, int base) {
    const ndp_instr *in = &s->p->instrs[i];
    const ndp_list *list = ndp_program_list(s->p, in);
    for (int step = -1; step <= 1; step += 2)
        for (int k = i + step; k >= 0 && k < s->p->n; k += step) {
            const ndp_instr *other = &s->p->instrs[k];
            if (other->code != NDP_DO_RUN || ndp_program_list(s->p, other) != list ||
                other->bases[base] == in->bases[base] || other->bases[base] == NDP_NONE)
                continue;
            add_other(s, MUTATION_BLOCK, i, k, base, 0);
            break;
        }
}

static void add_run(const source *s, int i) {
    const ndp_instr *in = &s->p->instrs[i];
    const ndp_list *list = ndp_program_list(s->p, in);
    int batches = s->p->opts.step.accumulation;
    if (s->p->staging.bytes > 0)
        return;
    add_which(s, MUTATION_RUN_SKIPPED, i, 0, 0);
    add_which(s, MUTATION_RUN_TWICE, i, 0, 0);
    for (int k = 0; k < list->n_pgrads; k++)
        add_which(s, MUTATION_ACCUMULATE, i, k, 0);
    if (batches > 1 && reads_batch(s, list))
        add_which(s, MUTATION_MICRO_BATCH, i, 0, in->micro_batch + 1 < batches ? in->micro_batch + 1 : 0);
    if (in->phase <= NDP_FORWARD_DROP)
        add_which(s, MUTATION_PHASE, i, 0, in->phase == NDP_FORWARD ? NDP_FORWARD_DROP : NDP_FORWARD);
    for (int base = 0; base < NDP_BASE_DATA; base++)
        if (base != NDP_BASE_WORK && in->bases[base] != NDP_NONE && ndp_list_names(list, base))
            add_blocks(s, i, base);
}

/* ---- all ---- */

static bool runs(const ndp_program *p, int graph, ndp_phase phase) {
    bool any = false;
    for (int i = 0; i < p->n; i++)
        any |= p->instrs[i].code == NDP_DO_RUN && p->instrs[i].phase == phase &&
               p->opts.model->units[p->instrs[i].unit].graph == graph;
    return any;
}

void mutations_of(const ndp_program *p, mutations *out) {
    source s = {.p = p, .graph = NDP_NONE, .out = out};
    for (int i = 0; i < p->n; i++) {
        if (p->instrs[i].code == NDP_DO_RUN)
            add_run(&s, i);
        else
            add_call(&s, i);
    }
    for (int g = 0; g < p->opts.model->n_graphs; g++)
        for (int phase = 0; phase < NDP_PHASES; phase++) {
            s.graph = g, s.phase = (ndp_phase)phase, s.list = &p->opts.units[g].lists[phase];
            for (int i = 0; runs(p, g, s.phase) && i < s.list->n; i++)
                add_call(&s, i);
        }
}
