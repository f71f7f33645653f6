#include "base/arena.h"
#include "step/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *opcode_name(ndp_opcode c) {
    static const char *const names[NDP_OPCODES] = {"count", "scale", "run", "begin", "wait", "norm", "clip", "update"};
    return names[c];
}

static void print_place(const ndp_program *p, const char *label, ndp_place at, ndp_str *out) {
    if (at.block == NDP_NONE)
        return;
    const ndp_block *b = &p->blocks[at.block];
    ndp_str_addf(out, " %s=%s+%zu", label, ndp_region_name(b->region), b->offset + at.offset);
}

static void print_run(const ndp_program *p, const ndp_instr *in, ndp_str *out) {
    static const char *const names[NDP_BASE_DATA] = {"x",    "y",      "dy",     "dx",    "saved", "between",
                                                     "work", "param0", "param1", "grad0", "grad1"};
    ndp_str_addf(out, "%s %s mb %d:", ndp_phase_name(in->phase), in->what, in->micro_batch);
    for (int i = 0; i < NDP_BASE_DATA; i++)
        print_place(p, names[i], (ndp_place){in->bases[i], 0}, out);
    if (in->accumulate)
        ndp_str_addf(out, " accumulate=%x", in->accumulate);
}

static void print_comm(const ndp_program *p, const ndp_instr *in, ndp_str *out) {
    char bytes[16];
    ndp_group g = ndp_mesh_group(&p->opts.mesh, in->group);
    ndp_str_addf(out, "%s %s %s over %s (%d ranks, base %d, stride %d)", opcode_name(in->code),
                 ndp_collective_name(in->kind), in->what, ndp_group_name(in->group), g.count, g.base, g.stride);
    if (in->code == NDP_DO_WAIT) {
        ndp_str_addf(out, " of #%d", in->partner);
        return;
    }
    ndp_str_addf(out, " %lld %s, %s%s%s", (long long)in->count, ndp_dtype_name(in->type),
                 ndp_human_bytes((double)in->count * (double)ndp_dtype_size(in->type), bytes), in->add ? ", added" : "",
                 in->in_place ? ", in place" : "");
    print_place(p, "in", in->in, out);
    print_place(p, "out", in->out, out);
}

void ndp_program_print(const ndp_program *p, bool units, ndp_str *out) {
    char layout[128];
    ndp_str_addf(out, "step program of rank %d of %d (%s): %d instructions\n", p->opts.mesh.rank, p->opts.mesh.world,
                 ndp_layout_text(&p->opts.mesh.layout, layout, sizeof layout), p->n);
    for (int i = 0; i < p->n; i++) {
        const ndp_instr *in = &p->instrs[i];
        ndp_str_addf(out, "#%d ", i);
        if (in->code == NDP_DO_RUN)
            print_run(p, in, out);
        else if (in->code == NDP_DO_BEGIN || in->code == NDP_DO_WAIT)
            print_comm(p, in, out);
        else
            ndp_str_addf(out, "%s %s", opcode_name(in->code), in->what ? in->what : "");
        ndp_str_add(out, "\n");
    }
    for (int g = 0; units && g < p->opts.model->n_graphs; g++)
        for (int phase = 0; phase < NDP_PHASES; phase++)
            ndp_list_print(&p->opts.units[g], (ndp_phase)phase, &p->opts.mesh, out);
}

/* ---- traffic ---- */

/* Communications that are alike but for the unit or the buffer. */
typedef struct alike {
    ndp_event first;
    const char *graph; /* of the unit, or "" */
    bool others;       /* buffers */
    int64_t times;
} alike;

typedef struct traffic {
    alike *items;
    int n;
    int64_t capacity;
} traffic;

static const char *graph_of(const ndp_program *p, const ndp_event *e) {
    return e->call == NDP_NONE ? "" : p->opts.units[p->opts.model->units[p->instrs[e->instr].unit].graph].graph->name;
}

static bool are_alike(const alike *a, const ndp_event *e, const char *graph) {
    const ndp_event *f = &a->first;
    return f->kind == e->kind && f->group == e->group && f->bytes == e->bytes && f->in_place == e->in_place &&
           strcmp(a->graph, graph) == 0 && (!*graph || strcmp(f->what, e->what) == 0);
}

static ndp_status count_alike(const ndp_program *p, traffic *t) {
    ndp_event e;
    for (ndp_event_cursor c = {0}; ndp_program_event(p, &c, &e);) {
        const char *graph = graph_of(p, &e);
        int i = 0;
        if (!e.begin)
            continue;
        while (i < t->n && !are_alike(&t->items[i], &e, graph))
            i++;
        NDP_TRY(ndp_array_reserve(&t->items, &t->capacity, i + 1, sizeof *t->items));
        if (i == t->n)
            t->items[t->n++] = (alike){.first = e, .graph = graph};
        t->items[i].times++;
        t->items[i].others |= strcmp(t->items[i].first.what, e.what) != 0;
    }
    return NDP_OK;
}

static void print_alike(const alike *a, ndp_str *out) {
    char bytes[16];
    const ndp_event *e = &a->first;
    ndp_str_addf(out, "    %6lld x %10s  %-14s %s%s%s", (long long)a->times, ndp_human_bytes((double)e->bytes, bytes),
                 ndp_collective_name(e->kind), a->graph, *a->graph ? ": " : "", e->what);
    ndp_str_addf(out, "%s%s\n", a->others ? ", ..." : "", e->in_place ? "; in place" : "");
}

void ndp_program_print_traffic(const ndp_program *p, ndp_str *out) {
    char bytes[16];
    traffic t = {0};
    double sent[NDP_GROUPS];
    ndp_program_traffic(p, sent);
    out->failed |= count_alike(p, &t) != NDP_OK;
    for (int g = 0; g < NDP_GROUPS; g++) {
        int ranks = ndp_mesh_group(&p->opts.mesh, (ndp_group_kind)g).count;
        bool used = false;
        for (int i = 0; i < t.n && !used; i++)
            used = (int)t.items[i].first.group == g;
        if (!used)
            continue;
        ndp_str_addf(out, "  %-16s %10s  over %d ranks\n", ndp_group_name((ndp_group_kind)g),
                     ndp_human_bytes(sent[g], bytes), ranks);
        for (int i = 0; i < t.n; i++)
            if ((int)t.items[i].first.group == g)
                print_alike(&t.items[i], out);
    }
    free(t.items);
}
