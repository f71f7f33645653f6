/* A program as text (`plan --program`), and its traffic in groups of communications that are alike. */
#include "base/arena.h"
#include "step/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_place(const ndp_program *p, const char *label, ndp_address at, ndp_str *out) {
    if (at.block == NDP_NONE)
        return;
    const ndp_block *b = &p->blocks[at.block];
    ndp_str_addf(out, " %s=%s+%zu", label, ndp_region_name(b->region), b->offset + at.offset);
    if (b->ring.n > 1)
        ndp_str_addf(out, "(%d of %d)", at.block - b->ring.first + 1, b->ring.n);
}

static void print_run(const ndp_program *p, const ndp_instr *in, ndp_str *out) {
    ndp_str_addf(out, "%s %s mb %d:", ndp_phase_name(in->phase), in->what, in->micro_batch);
    for (int i = 0; i < NDP_BASE_DATA; i++)
        print_place(p, ndp_base_name(i), (ndp_address){in->bases[i], 0}, out);
    if (in->accumulate)
        ndp_str_addf(out, " accumulate=%x", in->accumulate);
}

static void print_group(const ndp_program *p, const ndp_call *c, ndp_str *out) {
    ndp_group_kind kind = ndp_channel_group(c->channel);
    ndp_group g = ndp_mesh_group(&p->opts.step.mesh, kind);
    ndp_str_addf(out, " over %s (%d ranks, base %d, stride %d)", ndp_group_name(kind), g.count, g.base, g.stride);
}

static void print_call(const ndp_program *p, const ndp_instr *in, ndp_str *out) {
    static const char *const kinds[] = {"", "begin ", "wait "};
    const ndp_call *c = &in->call;
    char bytes[16];
    ndp_str_addf(out, "%s%s %s", kinds[c->kind], c->op->name, in->what);
    if (c->op->collective == NDP_SEND || c->op->collective == NDP_RECV)
        ndp_str_addf(out, ", micro-batch %d %s %d", in->micro_batch, c->op->collective == NDP_SEND ? "to" : "from",
                     c->attr.peer);
    if (c->kind != NDP_CALL_KERNEL)
        print_group(p, c, out);
    if (c->kind == NDP_CALL_WAIT) {
        ndp_str_addf(out, " of #%d", c->partner);
        return;
    }
    int64_t n = ndp_call_elements(c);
    ndp_dtype type = c->in[0].view.dtype;
    if (c->kind == NDP_CALL_BEGIN)
        ndp_str_addf(out, " %lld %s, %s%s%s", (long long)n, ndp_dtype_name(type),
                     ndp_human_bytes((double)n * (double)ndp_dtype_size(type), bytes),
                     c->attr.accumulate ? ", added" : "", c->in_place ? ", in place" : "");
    for (int k = 0; k < c->n_in; k++)
        print_place(p, "in", (ndp_address){c->in[k].base, c->in[k].offset}, out);
    for (int k = 0; k < c->n_out; k++)
        print_place(p, "out", (ndp_address){c->out[k].base, c->out[k].offset}, out);
}

/* Before the first instruction of a range, and after its last one. */
static void print_repeat(const ndp_repeat *r, int instr, ndp_str *out) {
    if (instr == r->first)
        ndp_str_addf(out, "#%d to #%d x %lld, micro-batches + %d each time {\n", r->first, r->first + r->n - 1,
                     (long long)r->times, r->micro_batches);
    if (instr == r->first + r->n)
        ndp_str_add(out, "}\n");
}

void ndp_program_print(const ndp_program *p, bool units, ndp_str *out) {
    char layout[128];
    ndp_str_addf(out, "step program of rank %d of %d (%s): %d instructions\n", p->opts.step.mesh.rank,
                 p->opts.step.mesh.world, ndp_layout_text(&p->opts.step.mesh.layout, layout, sizeof layout), p->n);
    for (int i = 0; i < p->n; i++) {
        const ndp_instr *in = &p->instrs[i];
        for (int k = 0; k < p->repeats.n; k++)
            print_repeat(&p->repeats.items[k], i, out);
        ndp_str_addf(out, "#%d ", i);
        if (in->code == NDP_DO_RUN)
            print_run(p, in, out);
        else
            print_call(p, in, out);
        ndp_str_add(out, "\n");
    }
    for (int g = 0; units && g < p->opts.model->n_graphs; g++)
        for (int phase = 0; phase < NDP_PHASES; phase++)
            ndp_list_print(&p->opts.units[g], (ndp_phase)phase, &p->opts.step.mesh, out);
}

/* ---- traffic ---- */

/* Communications that differ only in their unit or buffer. */
typedef struct alike {
    ndp_comm_event first;
    const char *graph; /* of the unit, or "" */
    bool others;       /* buffers */
    int64_t times;
} alike;

typedef struct traffic {
    alike *items;
    int n;
    int64_t capacity;
} traffic;

static const char *graph_of(const ndp_program *p, const ndp_comm_event *e) {
    return e->call_index == NDP_NONE ? ""
                                     : p->opts.units[p->opts.model->units[p->instrs[e->instr].unit].graph].graph->name;
}

static bool are_alike(const alike *a, const ndp_comm_event *e, const char *graph) {
    const ndp_comm_event *f = &a->first;
    return f->call->op == e->call->op && f->call->channel == e->call->channel && f->bytes == e->bytes &&
           f->call->in_place == e->call->in_place && strcmp(a->graph, graph) == 0 &&
           (!*graph || strcmp(f->call->what, e->call->what) == 0);
}

static ndp_status count_alike(const ndp_program *p, traffic *t) {
    ndp_comm_event e;
    for (ndp_comm_event_cursor c = NDP_COMM_EVENTS(NDP_FIRST_ITERATIONS(1)); ndp_program_comm_event(p, &c, &e);) {
        const char *graph = graph_of(p, &e);
        int i = 0;
        if (!e.begin)
            continue;
        while (i < t->n && !are_alike(&t->items[i], &e, graph))
            i++;
        NDP_TRY(ndp_array_reserve(&t->items, &t->capacity, i + 1, sizeof *t->items));
        if (i == t->n)
            t->items[t->n++] = (alike){.first = e, .graph = graph};
        const ndp_comm_event *first = &t->items[i].first;
        int64_t times = ndp_repeats_times(&p->repeats, e.instr);
        t->items[i].others |= strcmp(first->call->what, e.call->what) != 0 ||
                              (ndp_comm_event_is_message(&e) && (times > 1 || first->micro_batch != e.micro_batch));
        t->items[i].times += times;
    }
    return NDP_OK;
}

static void print_alike(const alike *a, ndp_str *out) {
    char bytes[16];
    const ndp_comm_event *e = &a->first;
    ndp_str_addf(out, "    %6lld x %10s  %-14s %s%s%s", (long long)a->times, ndp_human_bytes((double)e->bytes, bytes),
                 e->call->op->name, a->graph, *a->graph ? ": " : "", e->call->what);
    if (ndp_comm_event_is_message(e))
        ndp_str_addf(out, ", micro-batch %d", e->micro_batch);
    ndp_str_addf(out, "%s%s\n", a->others ? ", ..." : "", e->call->in_place ? "; in place" : "");
}

/* True if a communication is over groups of this kind. */
static bool is_used(const traffic *t, int group) {
    for (int i = 0; i < t->n; i++)
        if ((int)ndp_comm_event_group(&t->items[i].first) == group)
            return true;
    return false;
}

static void put_alike(const alike *a, ndp_json_out *out) {
    const ndp_comm_event *e = &a->first;
    ndp_json_open(out, NULL, '{');
    ndp_json_put_int(out, "times", a->times);
    ndp_json_put_int(out, "bytes", (int64_t)e->bytes);
    ndp_json_put_text(out, "operation", e->call->op->name);
    ndp_json_put_text(out, "unit", *a->graph ? a->graph : NULL);
    ndp_json_put_text(out, "what", e->call->what);
    ndp_json_put_bool(out, "others", a->others);
    ndp_json_put_bool(out, "in_place", e->call->in_place);
    ndp_json_close(out, '}');
}

void ndp_program_put_traffic(const ndp_program *p, const char *key, ndp_json_out *out) {
    traffic t = {0};
    double sent[NDP_GROUPS];
    ndp_program_traffic(p, sent);
    out->text.failed |= count_alike(p, &t) != NDP_OK;
    ndp_json_open(out, key, '[');
    for (int g = 0; g < NDP_GROUPS; g++) {
        if (!is_used(&t, g))
            continue;
        ndp_json_open(out, NULL, '{');
        ndp_json_put_text(out, "group", ndp_group_name((ndp_group_kind)g));
        ndp_json_put_int(out, "ranks", ndp_mesh_group(&p->opts.step.mesh, (ndp_group_kind)g).count);
        ndp_json_put_number(out, "bytes", sent[g]);
        ndp_json_open(out, "calls", '[');
        for (int i = 0; i < t.n; i++)
            if ((int)ndp_comm_event_group(&t.items[i].first) == g)
                put_alike(&t.items[i], out);
        ndp_json_close(out, ']');
        ndp_json_close(out, '}');
    }
    ndp_json_close(out, ']');
    free(t.items);
}

void ndp_program_print_traffic(const ndp_program *p, ndp_str *out) {
    char bytes[16];
    traffic t = {0};
    double sent[NDP_GROUPS];
    ndp_program_traffic(p, sent);
    out->failed |= count_alike(p, &t) != NDP_OK;
    for (int g = 0; g < NDP_GROUPS; g++) {
        int ranks = ndp_mesh_group(&p->opts.step.mesh, (ndp_group_kind)g).count;
        if (!is_used(&t, g))
            continue;
        ndp_str_addf(out, "  %-16s %10s  over %d ranks\n", ndp_group_name((ndp_group_kind)g),
                     ndp_human_bytes(sent[g], bytes), ranks);
        for (int i = 0; i < t.n; i++)
            if ((int)ndp_comm_event_group(&t.items[i].first) == g)
                print_alike(&t.items[i], out);
    }
    free(t.items);
}
