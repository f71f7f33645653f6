/* What messages say of instructions and of what memory holds. */
#include "placement/step_lanes.h"

#include <stdarg.h>
#include <stdio.h>

static const char *instr_text(const ndp_program *p, int at, char *out, size_t size) {
    static const char *const kinds[] = {"", "begin of ", "wait for "};
    const ndp_instr *in = at >= 0 && at < p->n ? &p->instrs[at] : NULL;
    const char *what = in && in->what ? in->what : "";
    if (!in)
        snprintf(out, size, "the end of the step");
    else if (in->code == NDP_DO_RUN)
        snprintf(out, size, "#%d %s %s", at, ndp_phase_name(in->phase), what);
    else
        snprintf(out, size, "#%d %s%s %s", at, kinds[in->call.kind], in->call.op->name, what);
    return out;
}

ndp_status ndp_step_refuse(const ndp_step_lane *l, const char *fmt, ...) {
    char rank[160], instr[192], text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return NDP_FAIL(NDP_EBUG, "placement: %s: %s: %s", ndp_lane_text(l->world->lanes, l->lane, rank, sizeof rank),
                    instr_text(l->program, l->over ? NDP_NONE : l->walk.at, instr, sizeof instr), text);
}

static const char *const held_names[NDP_HELD_KINDS] = {"nothing that was written in this step",
                                                       "inputs",
                                                       "the constants of the update",
                                                       "a table of pieces",
                                                       "a number of the step",
                                                       "the output",
                                                       "the gradient of the output",
                                                       "saved values",
                                                       "saved values for the input gradient",
                                                       "values between the gradients",
                                                       "weights",
                                                       "the first state of the optimizer",
                                                       "the second state of the optimizer",
                                                       "codes of the first state of the optimizer",
                                                       "codes of the second state of the optimizer",
                                                       "scales of the first state of the optimizer",
                                                       "scales of the second state of the optimizer",
                                                       "the gradient",
                                                       "directions",
                                                       "transformed directions",
                                                       "zeros",
                                                       "parts of a matrix",
                                                       "a transformed matrix"};

static const char *own_text(ndp_own own) {
    static const char *const names[] = {"", ", of own samples over dp_replicate", ", of own samples over dp_shard",
                                        ", of own samples over dp_replicate and dp_shard"};
    return names[own & NDP_OWN_BOTH];
}

/* What is left out of a gradient, or there twice, if it is one micro-batch. */
static void micro_batch_text(const ndp_step_world *w, ndp_share s, char *out, size_t size) {
    out[0] = 0;
    for (int m = 0; m < w->micro_batches && w->micro_batches > 1; m++) {
        if (ndp_share_add(s, w->weights[m]) == 1)
            snprintf(out, size, ": that of micro-batch %d is missing", m);
        if (ndp_share_sub(s, w->weights[m]) == 1)
            snprintf(out, size, ": that of micro-batch %d is there twice", m);
        if (s == w->weights[m])
            snprintf(out, size, ": that of micro-batch %d alone", m);
    }
}

const char *ndp_held_text(const ndp_step_lane *l, const ndp_held *s, char *out, size_t size) {
    static const char *const times[] = {"before this step alone", "in this step", "twice in this step"};
    const ndp_step_world *w = l->world;
    char made[192], share[64], alone[64];
    bool unit = s->kind >= NDP_HELD_BOUNDARY && s->kind <= NDP_HELD_BETWEEN;
    int n = snprintf(out, size, "%s", held_names[s->kind]);
    if (unit && s->of >= 0 && s->of < w->whole->n_units)
        n += snprintf(out + n, size - (size_t)n, " of %s, micro-batch %d", w->whole->units[s->of].name, s->at);
    else if (s->kind >= NDP_HELD_PARAM && s->kind != NDP_HELD_ZERO && s->of >= 0)
        n += snprintf(out + n, size - (size_t)n, " of %s", w->whole->buffers[s->of].name);
    if (unit && s->share != 0)
        n += snprintf(out + n, size - (size_t)n, ", changed in place");
    if (s->kind == NDP_HELD_GRAD) {
        micro_batch_text(w, s->share, alone, sizeof alone);
        n += snprintf(out + n, size - (size_t)n, ", %s%s%s", ndp_share_text(s->share, share, sizeof share), alone,
                      own_text(s->own));
    }
    if (s->kind >= NDP_HELD_PARAM && s->kind <= NDP_HELD_SCALES1)
        n += snprintf(out + n, size - (size_t)n, ", updated %s", times[s->at < 2 ? s->at : 2]);
    if (s->made != NDP_NONE && n < (int)size)
        snprintf(out + n, size - (size_t)n, ", made by %s", instr_text(l->program, s->made, made, sizeof made));
    return out;
}
