/* The communications of a program, those inside units too, one after the other. */
#include "step/program.h"

#include <stdio.h>

const ndp_list *ndp_program_list(const ndp_program *p, const ndp_instr *run) {
    return &p->opts.units[p->opts.model->units[run->unit].graph].lists[run->phase];
}

static ndp_event of_instr(const ndp_program *p, int index) {
    const ndp_instr *in = &p->instrs[index];
    int64_t parts = in->kind == NDP_REDUCE_SCATTER ? ndp_mesh_group(&p->opts.mesh, in->group).count : 1;
    return (ndp_event){.instr = index,
                       .call = NDP_NONE,
                       .begin = in->code == NDP_DO_BEGIN,
                       .kind = in->kind,
                       .group = in->group,
                       .gathers = in->kind == NDP_ALL_GATHER,
                       .bytes = in->count * parts * (int64_t)ndp_dtype_size(in->type),
                       .unit = "",
                       .what = in->what,
                       .in_place = in->in_place};
}

static ndp_event of_call(const ndp_program *p, int index, int call) {
    const ndp_instr *in = &p->instrs[index];
    const ndp_list *list = ndp_program_list(p, in);
    const ndp_call *c = &list->calls[call];
    const ndp_graph *g = p->opts.units[p->opts.model->units[in->unit].graph].graph;
    const ndp_view *v = &c->in[0].view;
    return (ndp_event){.instr = index,
                       .call = call,
                       .begin = c->kind == NDP_CALL_BEGIN,
                       .kind = c->op->collective,
                       .group = (ndp_group_kind)c->attr.group,
                       .bytes = v->rows * v->cols * (int64_t)ndp_dtype_size(v->dtype),
                       .unit = in->what,
                       .what = g->values[c->in[0].value].name};
}

bool ndp_program_event(const ndp_program *p, ndp_event_cursor *at, ndp_event *out) {
    for (; at->instr < p->n; at->instr++, at->call = 0) {
        const ndp_instr *in = &p->instrs[at->instr];
        if (in->code == NDP_DO_BEGIN || in->code == NDP_DO_WAIT) {
            *out = of_instr(p, at->instr++);
            at->call = 0;
            return true;
        }
        if (in->code != NDP_DO_RUN)
            continue;
        const ndp_list *list = ndp_program_list(p, in);
        for (; at->call < list->n; at->call++)
            if (list->calls[at->call].kind != NDP_CALL_KERNEL) {
                *out = of_call(p, at->instr, at->call++);
                return true;
            }
    }
    return false;
}

const char *ndp_event_text(const ndp_event *e, char *out, size_t size) {
    char at[32];
    snprintf(at, sizeof at, e->call == NDP_NONE ? "#%d" : "#%d.%d", e->instr, e->call);
    snprintf(out, size, "%s %s %s%s%s (%lld bytes)", at, ndp_collective_name(e->kind), e->unit, *e->unit ? " " : "",
             e->what, (long long)e->bytes);
    return out;
}
