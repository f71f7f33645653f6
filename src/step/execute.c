/* The executor: runs the step program, and the unit programs that it names.
 *
 * An instruction is a list of a unit's calls (RUN) or one call (CALL); both are run by graph/call.h, which submits
 * kernels to the queue and passes collectives to `collective` below. It is the only code that begins and waits for
 * operations of comm/. Nothing here depends on the layout: that is all in the list.
 *
 * A step uploads its constants, submits the list, and copies the scalars to the host. ndp_engine_result waits for that
 * copy and reads them; a second step may be submitted before that, and goes on. */
#include "step/loss_rows.h"
#include "step/staging.h"

#include "base/clock.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_OPERATIONS = 256 }; /* of a list, as counted for the distance between host and device */

/* Kinds that only move bytes count bytes; a send has no result, a receive nothing to hand in. */
static ndp_comm_call comm_call_of(const ndp_call *c, const ndp_op_call *operands, int tag) {
    const ndp_view *in = &operands->in[0];
    ndp_work_kind kind = ndp_collective_kind(c->op->collective);
    bool typed = kind == NDP_WORK_ALL_GATHER || kind == NDP_WORK_REDUCE_SCATTER || kind == NDP_WORK_ALL_REDUCE;
    bool message = kind == NDP_WORK_SEND || kind == NDP_WORK_RECV;
    void *out = operands->out[0].data;
    return (ndp_comm_call){.kind = kind,
                           .in = kind == NDP_WORK_RECV         ? NULL
                                 : kind == NDP_WORK_ALL_REDUCE ? out
                                                               : in->data,
                           .out = kind == NDP_WORK_SEND ? NULL : out,
                           .count = ndp_call_elements(c) * (typed ? 1 : (int64_t)ndp_dtype_size(in->dtype)),
                           .type = typed ? in->dtype : NDP_U8,
                           .reduce = NDP_SUM,
                           .peer = message ? c->attr.peer : 0,
                           .tag = message ? tag : 0,
                           .accumulate = kind == NDP_WORK_REDUCE_SCATTER && c->attr.accumulate};
}

/* The entry of e->works of a begin or wait. */
static int work_of(const ndp_engine *e, const ndp_instr *in, const ndp_call *c, int index) {
    if (index == NDP_NONE)
        return ndp_work_at(in, &e->at);
    return e->program.n_works + (c->kind == NDP_CALL_BEGIN ? index : c->partner);
}

/* Names the call to the communicator, for its messages about hangs. */
static void name_call(ndp_engine *e, const ndp_instr *in, const ndp_call *c, int index) {
    const char *what = in->what;
    if (c->op->collective == NDP_SEND || c->op->collective == NDP_RECV) {
        snprintf(e->message, sizeof e->message, "%s, micro-batch %d", what, ndp_micro_batch_at(in, &e->at));
        what = e->message;
    }
    ndp_comm_at(e->comms[c->channel], what, e->at.at, index);
}

/* The instruction reduces or sums the gradient of a buffer, in a call of an update. */
static bool reduces(const ndp_engine *e, const ndp_instr *in, const ndp_op *op) {
    return in->code == NDP_DO_CALL && in->call.op == op && in->buffer != NDP_NONE && e->at.at < e->program.first_norm;
}

/* Begins or waits for a collective of the program (`index` NDP_NONE) or of the unit that runs. */
static ndp_status collective(void *user, int index, const ndp_call *c, const ndp_op_call *operands) {
    ndp_engine *e = user;
    const ndp_instr *in = &e->program.instrs[e->at.at];
    int work = work_of(e, in, c, index);
    double start = ndp_now();
    name_call(e, in, c, index);
    if (c->kind == NDP_CALL_BEGIN) {
        e->begun[work] = start;
        ndp_comm_call call = comm_call_of(c, operands, ndp_tag_at(c, &e->at));
        call.stage = ndp_staging_at(e, index);
        if (c->op == &ndp_op_all_to_all_rows)
            NDP_TRY(ndp_staging_rows(e, index, c, &operands->in[1], &call));
        call.accumulate |= e->step.adds && index == NDP_NONE && reduces(e, in, &ndp_op_reduce_scatter);
        NDP_TRY(ndp_comm_begin(e->comms[c->channel], &call, e->queue, &e->works[work]));
        e->profile.begin += ndp_now() - start;
        return NDP_OK;
    }
    NDP_TRY(ndp_comm_wait(&e->works[work], e->queue));
    double now = ndp_now();
    e->profile.wait += now - start;
    e->profile.under_way += now - e->begun[work];
    e->profile.flight[c->op->id] += now - e->begun[work];
    if (index != NDP_NONE)
        e->profile.in_units += now - start;
    return NDP_OK;
}

/* ---- where the queue is ---- */

/* About how many operations a unit's list submits: ranges as often as they can run. */
static int list_operations(const ndp_list *list) {
    int64_t n = list->n;
    for (int i = 0; i < list->repeats.n; i++)
        n += list->repeats.items[i].n * (list->repeats.items[i].times - 1);
    return (int)(n < MOST_OPERATIONS ? n : MOST_OPERATIONS);
}

/* Says what the instruction is, for messages. Begins and waits do it themselves. */
static ndp_status say_instruction(ndp_engine *e, const ndp_instr *in) {
    bool run = in->code == NDP_DO_RUN;
    if (!e->queues || (!run && in->call.kind != NDP_CALL_KERNEL))
        return NDP_OK;
    return ndp_transport_at(
        e->queues, e->queue,
        &(ndp_queue_place){.doing = run ? ndp_phase_name(in->phase) : in->call.op->name,
                           .what = in->what,
                           .instr = e->at.at,
                           .call = -1,
                           .operations = run ? list_operations(ndp_program_list(&e->program, in)) : 1});
}

/* A kernel of a unit's list. */
static ndp_status say_call(void *user, int index, const ndp_call *c) {
    ndp_engine *e = user;
    if (index == NDP_NONE)
        return NDP_OK;
    return ndp_transport_at(e->queues, e->queue,
                            &(ndp_queue_place){.doing = c->op->name,
                                               .what = e->program.instrs[e->at.at].what,
                                               .instr = e->at.at,
                                               .call = index,
                                               .operations = 1});
}

static ndp_status run_on_host(void *user, const ndp_call *c, const ndp_op_call *operands) {
    ndp_engine *e = user;
    return ndp_loss_rows_run(e, &e->program.instrs[e->at.at], c, operands);
}

static ndp_status drain(void *user) {
    const ndp_engine *e = user;
    return ndp_engine_drain(e, e->queue);
}

/* ---- instructions ---- */

static ndp_call_opts call_opts(ndp_engine *e, void *const *bases) {
    return (ndp_call_opts){.exec = e->opts.step.exec,
                           .queue = e->queue,
                           .bases = bases,
                           .times = e->op_times.device ? &e->op_times : NULL,
                           .collective = collective,
                           .host = run_on_host,
                           .before = e->queues && ndp_transport_names_calls(e->queues) ? say_call : NULL,
                           .after = e->values ? ndp_engine_look : NULL,
                           .drain = drain,
                           .user = e};
}

static void *block_at(const ndp_engine *e, int block) {
    return e->addresses[ndp_block_at(e->program.blocks, block, &e->at)];
}

/* Gradients that are kept where runs write them: a further call of the update adds to them from the start. */
static uint32_t added_gradients(const ndp_engine *e, const ndp_instr *in, const ndp_list *list) {
    uint32_t bits = in->accumulate;
    for (int k = 0; e->step.adds && k < list->n_pgrads; k++)
        if (e->program.owned[e->model.units[in->unit].buffers[list->pgrads[k].slot]].shard.shards == 1)
            bits |= 1u << k;
    return bits;
}

static ndp_status do_run(ndp_engine *e, const ndp_instr *in) {
    int micro_batch = ndp_micro_batch_at(in, &e->at);
    const ndp_list *list = ndp_program_list(&e->program, in);
    void *bases[NDP_BASES] = {0};
    for (int i = 0; i < e->model.inputs->n; i++)
        bases[NDP_BASE_DATA + i] = ndp_engine_input_at(e, i, in->unit, micro_batch);
    for (int i = 0; i < NDP_BASE_DATA; i++)
        bases[i] = in->bases[i] == NDP_NONE ? NULL : block_at(e, in->bases[i]);
    ndp_call_opts opts = call_opts(e, bases);
    opts.accumulate = added_gradients(e, in, list);
    opts.counted = ndp_engine_later_of(e, &e->model.units[in->unit], in->phase);
    return ndp_list_run(list, &opts);
}

/* With the numbers of the step in place of the program's. */
static ndp_status run_clip_factor(const ndp_engine *e, const ndp_instr *in, const ndp_call_opts *opts) {
    ndp_call c = in->call;
    c.attr.max_norm = e->step.max_norm, c.attr.scale = e->step.scale;
    return ndp_call_run(&c, NDP_NONE, opts);
}

static ndp_status execute(ndp_engine *e) {
    const ndp_instr *in = &e->program.instrs[e->at.at];
    if (in->code == NDP_DO_RUN)
        return do_run(e, in);
    ndp_call_opts opts = call_opts(e, e->addresses);
    if (in->call.op == &ndp_op_clip_factor && e->step.own_norm)
        return run_clip_factor(e, in, &opts);
    if (in->role == NDP_NONE)
        return ndp_call_run(&in->call, NDP_NONE, &opts);
    void **at = &e->addresses[in->call.in[0].base], *start = *at; /* of a message's block, which may rotate */
    *at = block_at(e, in->call.in[0].base);
    ndp_status st = ndp_call_run(&in->call, NDP_NONE, &opts);
    *at = start;
    return st;
}

/* ---- steps ---- */

static void add_time(ndp_profile *p, const ndp_instr *in, double seconds) {
    if (in->code == NDP_DO_RUN)
        p->phase[in->phase] += seconds;
    else if (in->call.kind == NDP_CALL_KERNEL)
        p->own += seconds;
}

/* Uploads the numbers that the updates read, from host memory that is unchanged while the step is pending. */
static ndp_status upload_constants(ndp_engine *e, const ndp_step_input *in, int64_t place) {
    size_t bytes = ndp_constants_bytes(&e->program);
    double *constants = e->host.constants + (size_t)place * bytes / sizeof *constants;
    if (e->program.first_update == e->program.n)
        return NDP_OK;
    ndp_update_constants(&e->program.groups, in->lr, in->update, constants);
    return ndp_engine_copy(e, ndp_engine_at(e, e->program.constants), constants, bytes, false);
}

/* What another part of the update does, or has done. */
static bool skips(const ndp_engine *e, const ndp_instr *in) {
    bool sums = (e->step.open || e->only_sums) && reduces(e, in, &ndp_op_all_reduce);
    return e->only_sums ? !sums && e->at.at < e->program.first_norm : sums;
}

/* From where e->at is, up to instruction n. */
static ndp_status submit_instructions(ndp_engine *e, int n, double *last) {
    while (ndp_walk_next(&e->program.repeats, n, NDP_ALL_ITERATIONS, &e->at)) {
        const ndp_instr *in = &e->program.instrs[e->at.at];
        double in_units = e->profile.in_units;
        if (skips(e, in))
            continue;
        ndp_status st = say_instruction(e, in);
        if (st == NDP_OK)
            st = execute(e);
        NDP_TRY(e->queues ? ndp_transport_explain_submission(e->queues, st) : st);
        double now = ndp_now();
        add_time(&e->profile, in, now - *last);
        if (e->record.at)
            e->record.at[e->at.executed] = (ndp_instr_time){*last, now, e->profile.in_units - in_units};
        *last = now;
    }
    return NDP_OK;
}

/* The copy of the result, and the end of the step. */
static ndp_status submit_end(ndp_engine *e) {
    ndp_pending_step *step = &e->host.steps[e->host.submitted % NDP_STEPS_PENDING];
    NDP_TRY(
        ndp_engine_copy(e, &step->result, ndp_engine_at(e, e->program.scalars), ndp_scalars_bytes(&e->program), false));
    double *loads = ndp_engine_loads(e, e->host.submitted);
    if (loads)
        NDP_TRY(ndp_engine_copy(e, loads, ndp_engine_at(e, e->program.loads),
                                (size_t)ndp_program_loads(&e->program) * sizeof *loads, false));
    if (e->queues)
        NDP_TRY(ndp_transport_at(e->queues, e->queue,
                                 &(ndp_queue_place){.doing = "end", .what = "of the step", .instr = -1, .call = -1}));
    NDP_TRY(e->opts.step.exec->device->mark(e->queue, &step->end));
    step->loaded = e->host.loaded;
    return NDP_OK;
}

static void begin_record(ndp_engine *e, int64_t update) {
    int64_t *later = ndp_engine_later(e, e->host.submitted);
    for (int i = 0; later && i < ndp_engine_whole(e)->inputs->mixtures.n; i++)
        later[i] = 0;
    bool all = e->record.last < 0, wanted = all || (update >= e->record.first && update <= e->record.last);
    e->record.at = NULL;
    if (!e->record.times || !wanted)
        return;
    e->record.newest = all ? 0 : update - e->record.first;
    e->record.at = e->record.times + e->record.newest * ndp_program_executed(&e->program);
}

static ndp_status submit_all(ndp_engine *e, const ndp_step_input *in, double *last) {
    e->step = *in;
    e->rows_read.value = NDP_NONE;
    NDP_TRY(upload_constants(e, in, e->host.submitted % NDP_STEPS_PENDING));
    if (e->op_times.device && ndp_op_times_is_full(&e->op_times))
        NDP_TRY(ndp_engine_drain(e, e->queue));
    if (e->op_times.device)
        NDP_TRY(ndp_op_times_stamp(&e->op_times, e->queue, NDP_NONE));
    begin_record(e, in->update);
    e->at = NDP_WALK_START;
    NDP_TRY(submit_instructions(e,
                                in->open             ? e->program.first_norm
                                : in->update_weights ? e->program.n
                                                     : e->program.first_update,
                                last));
    if (e->record.at)
        e->record.n[e->record.newest] = e->at.executed;
    return submit_end(e);
}

ndp_status ndp_engine_submit(ndp_engine *e, const ndp_step_input *in) {
    double start = ndp_now(), last = start;
    if (e->host.submitted - e->host.taken == NDP_STEPS_PENDING)
        return NDP_FAIL(NDP_EBUG, "%d steps are pending: take a result before submitting another step",
                        NDP_STEPS_PENDING);
    ndp_status st = submit_all(e, in, &last);
    NDP_TRY(ndp_engine_explain(e, st));
    e->host.submitted++;
    e->profile.total += last - start;
    e->profile.steps++;
    return NDP_OK;
}

ndp_status ndp_engine_norm(ndp_engine *e, const ndp_step_input *in, double *norm) {
    double start = ndp_now(), last = start;
    ndp_scalars s;
    if (e->host.taken < e->host.submitted)
        return NDP_FAIL(NDP_EBUG, "the norm of an update is asked for while a step is pending");
    e->step = *in;
    e->step.open = false;
    e->only_sums = true;
    e->at = NDP_WALK_START;
    ndp_status st = submit_instructions(e, e->program.first_update, &last);
    e->only_sums = false;
    e->profile.total += last - start;
    NDP_TRY(ndp_engine_explain(e, st));
    NDP_TRY(ndp_engine_copy(e, &s, ndp_engine_at(e, e->program.scalars), sizeof s, true));
    *norm = s.norm;
    return NDP_OK;
}

ndp_status ndp_engine_update(ndp_engine *e, const ndp_step_input *in) {
    const ndp_program *p = &e->program;
    double start = ndp_now(), last = start;
    if (e->host.taken < e->host.submitted)
        return NDP_FAIL(NDP_EBUG, "an update is submitted while a step is pending");
    e->step = *in;
    ndp_status st = upload_constants(e, in, NDP_UPDATE_CONSTANTS_PLACE);
    /* No range that repeats has updates. */
    e->at = (ndp_walk){.at = p->first_update - 1,
                       .range = p->repeats.n,
                       .executed = ndp_repeats_executed(&p->repeats, p->first_update) - 1};
    if (st == NDP_OK)
        st = submit_instructions(e, p->n, &last);
    if (st == NDP_OK && e->record.at)
        e->record.n[e->record.newest] = e->at.executed;
    e->profile.total += last - start;
    return ndp_engine_explain(e, st);
}

static void take_pairs(const ndp_engine *e, const ndp_pair_scalars *s, ndp_step_result *out) {
    out->pairs = s->pairs, out->nll_tokens = s->nll_tokens;
    memcpy(out->sums, s->sums, sizeof out->sums);
    out->loss = ndp_step_result_loss(out, &e->model.opts.preference);
}

static void take_router_losses(const ndp_engine *e, const ndp_router_scalars *s, ndp_step_result *out) {
    double scale = s->scale / ndp_model_router_losses(e->program.opts.whole);
    out->balance = s->sums[NDP_ROUTER_BALANCE] * scale, out->z_loss = s->sums[NDP_ROUTER_Z] * scale;
}

ndp_status ndp_engine_result(ndp_engine *e, ndp_step_result *out) {
    if (e->host.taken == e->host.submitted)
        return NDP_FAIL(NDP_EBUG, "no step is pending");
    const ndp_pending_step *step = &e->host.steps[e->host.taken % NDP_STEPS_PENDING];
    const int64_t *later = ndp_engine_later(e, e->host.taken);
    const double *loads = ndp_engine_loads(e, e->host.taken++);
    const ndp_scalars *s = &step->result.step;
    NDP_TRY(ndp_engine_explain(e, e->opts.step.exec->device->after(e->host.results, &step->end)));
    NDP_TRY(ndp_engine_drain(e, e->host.results));
    if (step->loaded > e->host.copied)
        e->host.copied = step->loaded;
    if (e->op_times.device && e->host.taken == e->host.submitted)
        NDP_TRY(ndp_op_times_read(&e->op_times));
    *out = (ndp_step_result){.loss = s->loss * s->scale,
                             .grad_norm = s->norm,
                             .tokens = s->valid,
                             .sum = s->loss,
                             .loads = loads,
                             .later = later};
    if (ndp_program_has_pairs(&e->program))
        take_pairs(e, &step->result.pair, out);
    if (ndp_program_has_router_losses(&e->program))
        take_router_losses(e, &step->result.router, out);
    return NDP_OK;
}

ndp_status ndp_engine_step(ndp_engine *e, double lr, int64_t update, bool update_weights, ndp_step_result *out) {
    NDP_TRY(ndp_engine_submit(e, &(ndp_step_input){.lr = lr, .update = update, .update_weights = update_weights}));
    return ndp_engine_result(e, out);
}

const ndp_profile *ndp_engine_profile(const ndp_engine *e) { return &e->profile; }

/* How many calls a step executes, at most. */
static int64_t calls_of_step(const ndp_program *p) {
    int64_t calls = 0;
    for (int i = 0; i < p->n; i++) {
        int n;
        ndp_repeats repeats;
        ndp_instr_calls(p, &p->instrs[i], &n, &repeats);
        calls += ndp_repeats_times(&p->repeats, i) * ndp_repeats_executed(&repeats, n);
    }
    return calls;
}

ndp_status ndp_engine_profile_reset(ndp_engine *e, bool by_op) {
    NDP_CHECK(!e->op_times.device || e->host.taken == e->host.submitted,
              "the profile is reset while a step whose ops are timed is pending");
    e->profile = (ndp_profile){0};
    ndp_op_times_release(&e->op_times);
    return by_op ? ndp_op_times_init(&e->op_times, e->opts.step.exec->device, e->context,
                                     NDP_STEPS_PENDING * (calls_of_step(&e->program) + 1), e->profile.op)
                 : NDP_OK;
}
