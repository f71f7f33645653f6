/* Messages between pipeline stages (placement/step_run.c proves that each run reads its own). The builder calls
 * ndp_messages_before and ndp_messages_after around each run.
 *
 * An activation goes from the last unit of a stage to the first of the next, a gradient the other way, unless one rank
 * has both. A receive begins one entry of the schedule ahead, so that it is under way while the rank computes; a send
 * begins with its run's end and is waited for before the run of the second next send of its direction to the same peer,
 * or a later one (most_pending), and only after the peer receives it in a replay of the table (ndp_planned_run.taken):
 *
 *     rank 0 | F0 | F1 | F2 | ...       begin send 0 | begin send 1 | wait 0, begin send 2 | ...
 *     rank 1      | F0 | F1 | ...       begin receive 1, wait for 0 | F0 | begin receive 2, wait for 1 | F1 | ...
 *
 * A rank with stages in the middle of a V sends to both its neighbours in both directions. If a send to one waited for
 * those to the other, ranks would wait for each other in a circle.
 *
 * Each direction has its communicator. A tag is a stage and a micro-batch, so ranks need not have the same order. */
#include "step/program_parts.h"

#include <stdlib.h>
#include <string.h>

/* Of a value on the border of two stages: what it is, and where. */
typedef struct border {
    bool gradient;
    int stage;  /* that makes it; the gradient is of the output of the stage before it */
    int number; /* of the unit, in the whole model, whose slot has it */
    int peer;   /* the other rank of the group */
    int micro_batch;
    size_t bytes;
} border;

/* True if the unit before (step -1) or after (1) unit `unit` of this rank exists, on another rank. */
static bool is_border(const ndp_builder *b, int unit, int step) {
    int i = unit + step, stage = b->m->units[unit].stage + step;
    bool here = i >= 0 && i < b->m->n_units && b->m->units[i].number == b->m->units[unit].number + step;
    return !here && stage >= 0 && stage < b->p->opts.step.stages.n;
}

static ndp_status emit_begin(ndp_builder *b, const border *v, bool send, int *index) {
    ndp_program *p = b->p;
    ndp_slot *s = ndp_slot_of(b, v->number, v->micro_batch);
    ndp_dtype type = b->m->opts.compute;
    char *what = ndp_arena_format(&p->arena, "%s stage %d", v->gradient ? "gradient from" : "output of", v->stage);
    NDP_CHECK_MEMORY(what, "for the step program");
    ndp_address at = {v->gradient ? s->grad_input : s->output, 0};
    return ndp_emit_begin(
        p,
        &(ndp_collective_call){.op = send ? &ndp_op_send : &ndp_op_recv,
                               .group = NDP_GROUP_PP,
                               .in = at,
                               .out = at,
                               .count = (int64_t)(v->bytes / ndp_dtype_size(type)),
                               .type = type,
                               .what = what,
                               .buffer = NDP_NONE,
                               .backward = v->gradient,
                               .peer = v->peer,
                               .tag = (v->stage * p->opts.step.accumulation + v->micro_batch) % NDP_MESSAGE_TAGS,
                               .micro_batch = v->micro_batch,
                               .role = 4 * v->stage + 2 * v->gradient + send},
        index);
}

/* ---- receives ---- */

/* The value of another rank that run r reads and that has not arrived; false: there is none. */
static bool reads_border(const ndp_builder *b, int r, border *out) {
    const ndp_unit_run *run = &b->runs[r];
    const ndp_unit *u = &b->m->units[run->unit];
    const ndp_list *list = ndp_list_of_run(b, r);
    const ndp_unit_program *program = &b->p->opts.units[u->graph];
    bool gradient = run->phase == NDP_BACKWARD_INPUT || run->phase == NDP_BACKWARD_WEIGHT;
    int step = gradient ? 1 : -1;
    if (!ndp_list_names(list, gradient ? NDP_BASE_GRAD_OUTPUT : NDP_BASE_INPUT) || !is_border(b, run->unit, step))
        return false;
    *out = (border){.gradient = gradient,
                    .stage = u->stage + step,
                    .number = u->number + step,
                    .peer = b->p->opts.step.stages.rank_of[u->stage + step],
                    .micro_batch = run->micro_batch,
                    .bytes = gradient ? program->output_bytes : program->input_bytes};
    return !ndp_slot_of(b, out->number, run->micro_batch)->arrived[gradient];
}

static ndp_status begin_receive(ndp_builder *b, const border *v) {
    ndp_slot *s = ndp_slot_of(b, v->number, v->micro_batch);
    int *block = v->gradient ? &s->grad_input : &s->output;
    if (s->receive[v->gradient] != NDP_NONE)
        return NDP_OK;
    int role = ndp_block_role(v->number, v->gradient ? NDP_SLOT_GRAD_INPUT : NDP_SLOT_OUTPUT);
    NDP_TRY(ndp_block_of_role(b->p, v->bytes, role, v->micro_batch, block));
    return emit_begin(b, v, false, &s->receive[v->gradient]);
}

/* Begins what the next entry of the schedule reads first. */
static ndp_status begin_ahead(ndp_builder *b, int r) {
    border v;
    int next = r;
    while (next < b->n_runs && b->runs[next].entry == b->runs[r].entry)
        next++;
    for (int e = next; e < b->n_runs && b->runs[e].entry == b->runs[next].entry; e++)
        if (reads_border(b, e, &v))
            return begin_receive(b, &v);
    return NDP_OK;
}

/* ---- sends ---- */

/* How many sends to a peer may be pending, unless the peer receives the oldest of them only later by the table. A stage
 * runs at most one action ahead of the next one. But where stages go round the ranks, several of this rank's send to
 * the peer, or the last rank sends to the first; and one of them may send a micro-batch for every rank of pp before its
 * receiver has finished with as many of an earlier stage. */
static int most_pending(const ndp_builder *b, const border *v) {
    const ndp_stages *s = &b->p->opts.step.stages;
    int step = v->gradient ? -1 : 1, me = b->p->opts.step.mesh.coord[NDP_PP],
        pp = b->p->opts.step.mesh.layout.size[NDP_PP];
    int senders = 0;
    for (int i = 0; i < s->n; i++)
        senders += s->rank_of[i] == me && i + step >= 0 && i + step < s->n && s->rank_of[i + step] == v->peer;
    bool round = senders > 1 || abs(v->peer - me) > 1;
    return !round || pp < 2 ? 2 : pp < NDP_MOST_SENDS ? pp : NDP_MOST_SENDS;
}

/* What run r makes for another stage; false: nothing. */
static bool makes_border(const ndp_builder *b, int r, border *out) {
    const ndp_unit_run *run = &b->runs[r];
    const ndp_unit *u = &b->m->units[run->unit];
    const ndp_unit_program *program = &b->p->opts.units[u->graph];
    bool gradient = run->phase == NDP_BACKWARD_INPUT, forward = run->phase <= NDP_FORWARD_DROP;
    size_t bytes = gradient ? program->grad_input_bytes : program->output_bytes;
    int step = gradient ? -1 : 1;
    if ((!gradient && !forward) || bytes == 0 || !is_border(b, run->unit, step))
        return false;
    *out = (border){.gradient = gradient,
                    .stage = u->stage,
                    .number = u->number,
                    .peer = b->p->opts.step.stages.rank_of[u->stage + step],
                    .micro_batch = run->micro_batch,
                    .bytes = bytes};
    return true;
}

/* Waits for the oldest sends, so that as many as may be are pending with that of run r: before the run, whose output
 * may then have the memory of theirs. */
static ndp_status wait_for_sends(ndp_builder *b, int r) {
    border v;
    if (!makes_border(b, r, &v))
        return NDP_OK;
    ndp_sends *pending = &b->sends[v.peer][v.gradient];
    while (pending->n >= most_pending(b, &v) && pending->of[0].taken <= b->runs[r].entry) {
        NDP_TRY(ndp_emit_wait(b->p, pending->of[0].begin));
        memmove(pending->of, pending->of + 1, (size_t)--pending->n * sizeof *pending->of);
    }
    return NDP_OK;
}

ndp_status ndp_messages_after(ndp_builder *b, int r) {
    border v;
    if (!makes_border(b, r, &v))
        return NDP_OK;
    ndp_sends *pending = &b->sends[v.peer][v.gradient];
    NDP_CHECK(
        pending->n < NDP_MOST_SENDS,
        "the pipeline's table: rank %d of pp makes %s stage %d, micro-batch %d while rank %d has not begun to read "
        "the %d before it; at most %d may be on their way",
        b->p->opts.step.mesh.coord[NDP_PP], v.gradient ? "the gradient from" : "the output of", v.stage, v.micro_batch,
        v.peer, pending->n, NDP_MOST_SENDS);
    pending->of[pending->n].taken = b->runs[r].taken;
    return emit_begin(b, &v, true, &pending->of[pending->n++].begin);
}

/* ---- both ---- */

ndp_status ndp_messages_before(ndp_builder *b, int r) {
    border v;
    bool reads = reads_border(b, r, &v);
    if (reads)
        NDP_TRY(begin_receive(b, &v));
    if (r == 0 || b->runs[r].entry != b->runs[r - 1].entry)
        NDP_TRY(begin_ahead(b, r));
    if (reads) {
        ndp_slot *s = ndp_slot_of(b, v.number, v.micro_batch);
        s->arrived[v.gradient] = true;
        NDP_TRY(ndp_emit_wait(b->p, s->receive[v.gradient]));
    }
    return wait_for_sends(b, r);
}

ndp_status ndp_messages_finish(ndp_builder *b) {
    for (int d = 0; d < 2; d++)
        for (int peer = 0; peer < b->p->opts.step.mesh.layout.size[NDP_PP]; peer++)
            for (int i = 0; i < b->sends[peer][d].n; i++)
                NDP_TRY(ndp_emit_wait(b->p, b->sends[peer][d].of[i].begin));
    return NDP_OK;
}
