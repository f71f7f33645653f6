/* The communications of a program in the order of execution, as one sequence: calls of the program itself and calls
 * inside the units that it runs. The checker, the printer, the traffic and the choice of communicators read this
 * sequence, so none of them has to know that there are two levels. */
#include "step/program.h"

#include <stdio.h>

const ndp_list *ndp_program_list(const ndp_program *p, const ndp_instr *run) {
    return &p->opts.units[p->opts.model->units[run->unit].graph].lists[run->phase];
}

const ndp_call *ndp_instr_calls(const ndp_program *p, const ndp_instr *in, int *n) {
    const ndp_list *list = in->code == NDP_DO_RUN ? ndp_program_list(p, in) : NULL;
    *n = list ? list->n : 1;
    return list ? list->calls : &in->call;
}

const char *ndp_channel_name(int channel) {
    return channel == NDP_CHANNEL_FORWARD    ? "pp forward"
           : channel == NDP_CHANNEL_BACKWARD ? "pp backward"
                                             : ndp_group_name(ndp_channel_group(channel));
}

static ndp_comm_event event_of(const ndp_call *c, int instr, int index, int micro_batch, const char *unit) {
    const ndp_view *v = &c->in[0].view;
    return (ndp_comm_event){.instr = instr,
                            .call_index = index,
                            .call = c,
                            .begin = c->kind == NDP_CALL_BEGIN,
                            .micro_batch = micro_batch,
                            .bytes = v->rows * v->cols * (int64_t)ndp_dtype_size(v->dtype),
                            .unit = unit};
}

ndp_comm_event ndp_comm_event_at(const ndp_program *p, int instr, int call_index) {
    const ndp_instr *in = &p->instrs[instr];
    return call_index == NDP_NONE
               ? event_of(&in->call, instr, call_index, in->micro_batch, "")
               : event_of(&ndp_program_list(p, in)->calls[call_index], instr, call_index, in->micro_batch, in->what);
}

bool ndp_program_comm_event(const ndp_program *p, ndp_comm_event_cursor *at, ndp_comm_event *out) {
    for (; at->instr < p->n; at->instr++, at->call = 0) {
        const ndp_instr *in = &p->instrs[at->instr];
        if (in->code == NDP_DO_CALL && in->call.kind != NDP_CALL_KERNEL) {
            *out = event_of(&in->call, at->instr++, NDP_NONE, in->micro_batch, "");
            at->call = 0;
            return true;
        }
        const ndp_list *list = in->code == NDP_DO_RUN ? ndp_program_list(p, in) : NULL;
        for (; list && at->call < list->n; at->call++)
            if (list->calls[at->call].kind != NDP_CALL_KERNEL) {
                *out = event_of(&list->calls[at->call], at->instr, at->call, in->micro_batch, in->what);
                at->call++;
                return true;
            }
    }
    return false;
}

const char *ndp_comm_event_text(const ndp_comm_event *m, char *out, size_t size) {
    char at[32];
    snprintf(at, sizeof at, m->call_index == NDP_NONE ? "#%d" : "#%d.%d", m->instr, m->call_index);
    if (ndp_comm_event_is_message(m))
        snprintf(out, size, "%s %s %s %s rank %d of %s (%lld bytes)", at, m->call->op->name, m->call->what,
                 m->call->op->collective == NDP_SEND ? "to" : "from", m->call->attr.peer,
                 ndp_group_name(ndp_comm_event_group(m)), (long long)m->bytes);
    else
        snprintf(out, size, "%s %s %s%s%s (%lld bytes)", at, m->call->op->name, m->unit, *m->unit ? " " : "",
                 m->call->what, (long long)m->bytes);
    return out;
}
