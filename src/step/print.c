/* A program as text (`plan --program`). */
#include "step/program.h"

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
