/* The communications of a program in the order of execution, as one sequence: calls of the program itself and calls
 * inside the units that it runs. The checker, the printer, the traffic and the choice of communicators read this
 * sequence, so none of them has to know that there are two levels. */
#include "step/program.h"

#include <stdio.h>

const ndp_list *ndp_program_list(const ndp_program *p, const ndp_instr *run) {
    return &p->opts.units[p->opts.model->units[run->unit].graph].lists[run->phase];
}

const ndp_call *ndp_instr_calls(const ndp_program *p, const ndp_instr *in, int *n, ndp_repeats *repeats) {
    const ndp_list *list = in->code == NDP_DO_RUN ? ndp_program_list(p, in) : NULL;
    *n = list ? list->n : 1;
    *repeats = list ? list->repeats : (ndp_repeats){0};
    return list ? list->calls : &in->call;
}

bool ndp_program_has_counts(const ndp_program *p) {
    bool any = false;
    for (int g = 0; g < p->opts.model->n_graphs; g++)
        for (int k = 0; k < p->opts.units[g].lists[NDP_FORWARD].repeats.n; k++)
            any |= p->opts.units[g].lists[NDP_FORWARD].repeats.items[k].counted;
    return any;
}

const char *ndp_channel_name(int channel) {
    return channel == NDP_CHANNEL_FORWARD    ? "pp forward"
           : channel == NDP_CHANNEL_BACKWARD ? "pp backward"
                                             : ndp_group_name(ndp_channel_group(channel));
}

static ndp_comm_event event_of(const ndp_call *c, const ndp_instr *in, const ndp_walk *at, int index) {
    const ndp_view *v = &c->in[0].view;
    int64_t rows = c->op == &ndp_op_all_to_all_rows ? c->attr.mean : v->rows; /* how many go is data */
    return (ndp_comm_event){.instr = at->at,
                            .call_index = index,
                            .call = c,
                            .begin = c->kind == NDP_CALL_BEGIN,
                            .micro_batch = ndp_micro_batch_at(in, at),
                            .tag = ndp_tag_at(c, at),
                            .work = index == NDP_NONE ? ndp_work_at(in, at) : NDP_NONE,
                            .bytes = rows * v->cols * (int64_t)ndp_dtype_size(v->dtype),
                            .unit = index == NDP_NONE ? "" : in->what};
}

ndp_comm_event ndp_comm_event_at(const ndp_program *p, const ndp_walk *at, int call_index) {
    const ndp_instr *in = &p->instrs[at->at];
    return event_of(call_index == NDP_NONE ? &in->call : &ndp_program_list(p, in)->calls[call_index], in, at,
                    call_index);
}

/* The next communication of a RUN's list. */
static bool next_of_list(const ndp_program *p, ndp_comm_event_cursor *c, ndp_comm_event *out) {
    bool inside = c->walk.at >= 0 && c->walk.at < p->n;
    const ndp_instr *in = inside ? &p->instrs[c->walk.at] : NULL;
    bool out_of =
        inside && in->code == NDP_DO_RUN && c->without && c->without[p->opts.model->units[in->unit].graph][in->phase];
    const ndp_list *list = inside && in->code == NDP_DO_RUN && !out_of ? ndp_program_list(p, in) : NULL;
    while (list && ndp_walk_next(&list->repeats, list->n, c->visits, &c->call)) {
        const ndp_call *call = &list->calls[c->call.at];
        if (call->kind == NDP_CALL_KERNEL)
            continue;
        *out = event_of(call, in, &c->walk, c->call.at);
        return true;
    }
    return false;
}

bool ndp_program_comm_event(const ndp_program *p, ndp_comm_event_cursor *c, ndp_comm_event *out) {
    if (next_of_list(p, c, out))
        return true;
    while (ndp_program_next(p, c->visits, &c->walk)) {
        const ndp_instr *in = &p->instrs[c->walk.at];
        c->call = NDP_WALK_START;
        if (in->code == NDP_DO_CALL && in->call.kind != NDP_CALL_KERNEL) {
            *out = event_of(&in->call, in, &c->walk, NDP_NONE);
            return true;
        }
        if (next_of_list(p, c, out))
            return true;
    }
    return false;
}

const char *ndp_comm_event_text(const ndp_comm_event *m, char *out, size_t size) {
    char at[32];
    snprintf(at, sizeof at, m->call_index == NDP_NONE ? "#%d" : "#%d.%d", m->instr, m->call_index);
    if (ndp_comm_event_is_message(m))
        snprintf(out, size, "%s %s %s, micro-batch %d %s rank %d of %s (%lld bytes)", at, m->call->op->name,
                 m->call->what, m->micro_batch, m->call->op->collective == NDP_SEND ? "to" : "from", m->call->attr.peer,
                 ndp_group_name(ndp_comm_event_group(m)), (long long)m->bytes);
    else
        snprintf(out, size, "%s %s %s%s%s (%lld bytes)", at, m->call->op->name, m->unit, *m->unit ? " " : "",
                 m->call->what, (long long)m->bytes);
    return out;
}
