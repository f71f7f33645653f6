/* The builder: makes the step program of a rank from a schedule. Engines call ndp_program_build.
 *
 *     schedule -> runs (unit, phase, micro-batch)
 *     for each run: wait for its gathers and messages, begin the next | RUN | send | reduce the gradients that are
 *         complete | release
 *     loss scale before all runs; norm, clipping and updates after them; then the memory plan
 *
 * A slot holds the blocks of one unit and micro-batch, so runs of several micro-batches may interleave. */
#include "step/program_parts.h"

#include "parallel/recompute.h"
#include "step/staged.h"
#include <stdlib.h>
#include <string.h>

static const ndp_unit_program *program_of(const ndp_builder *b, int unit) {
    return &b->p->opts.units[b->m->units[unit].graph];
}

/* ---- runs ---- */

static void add_run(ndp_builder *b, int unit, ndp_phase phase, int micro_batch) {
    b->runs[b->n_runs++] = (ndp_unit_run){unit, micro_batch, phase, b->entry, b->taken};
    if (ndp_list_of_run(b, b->n_runs - 1)->n == 0)
        b->n_runs--;
}

static bool recomputes(const ndp_builder *b, int unit) {
    return b->p->opts.step.recompute && ndp_recompute_pays(program_of(b, unit));
}

static void add_gradients(ndp_builder *b, const ndp_planned_run *r, int unit) {
    if (r->action != NDP_ACTION_WEIGHT_GRADIENT && recomputes(b, unit))
        add_run(b, unit, NDP_RECOMPUTE, r->micro_batch);
    if (r->action != NDP_ACTION_WEIGHT_GRADIENT)
        add_run(b, unit, NDP_BACKWARD_INPUT, r->micro_batch);
    if (r->action != NDP_ACTION_INPUT_GRADIENT)
        add_run(b, unit, NDP_BACKWARD_WEIGHT, r->micro_batch);
}

static void list_runs(ndp_builder *b, const ndp_schedule *s) {
    bool train = b->m->opts.mode == NDP_MODEL_TRAIN;
    for (int i = 0; i < s->n; i++) {
        const ndp_planned_run *r = &s->runs[i];
        b->entry = i, b->taken = r->taken;
        for (int u = r->first_unit; r->action == NDP_ACTION_FORWARD && u < r->end_unit; u++)
            add_run(b, u, !train || recomputes(b, u) ? NDP_FORWARD_DROP : NDP_FORWARD, r->micro_batch);
        for (int u = r->end_unit - 1; r->action != NDP_ACTION_FORWARD && u >= r->first_unit; u--)
            add_gradients(b, r, u);
    }
}

/* ---- a run's memory ---- */

static ndp_status want(ndp_builder *b, int *block, ndp_memory_class class, size_t bytes) {
    return *block != NDP_NONE || bytes == 0 ? NDP_OK : ndp_block_add(b->p, class, bytes, block);
}

/* The block that a run of `r` has as `base`; *bytes: its size. Boundary values are in the slots of both their units. */
static int *block_of(const ndp_builder *b, const ndp_unit_run *r, ndp_base base, size_t *bytes) {
    const ndp_unit_program *u = program_of(b, r->unit);
    int number = b->m->units[r->unit].number;
    ndp_slot *s = ndp_slot_of(b, number, r->micro_batch);
    switch (base) {
    case NDP_BASE_INPUT:
        *bytes = u->input_bytes;
        return &ndp_slot_of(b, number - 1, r->micro_batch)->output;
    case NDP_BASE_OUTPUT:
        *bytes = u->output_bytes;
        return &s->output;
    case NDP_BASE_GRAD_OUTPUT:
        *bytes = u->output_bytes;
        return &ndp_slot_of(b, number + 1, r->micro_batch)->grad_input;
    case NDP_BASE_GRAD_INPUT:
        *bytes = u->grad_input_bytes;
        return &s->grad_input;
    case NDP_BASE_SAVED:
        *bytes = u->saved_bytes;
        return &s->saved;
    case NDP_BASE_SAVED_INPUT:
        *bytes = u->saved_input_bytes;
        return &s->saved_input;
    default:
        *bytes = u->between_bytes;
        return &s->between;
    }
}

/* Binds what the list of the run names: anything else need not live until then. A recompute leaves the output as it is.
 */
static ndp_status bind_activations(ndp_builder *b, int index, ndp_instr *in) {
    const ndp_unit_run *r = &b->runs[index];
    const ndp_list *list = ndp_list_of_run(b, index);
    int work = NDP_NONE;
    for (int base = NDP_BASE_INPUT; base < NDP_BASE_WORK; base++) {
        size_t bytes;
        bool again = r->phase == NDP_RECOMPUTE && base == NDP_BASE_OUTPUT;
        if (!ndp_list_names(list, base) || again)
            continue;
        int *block = block_of(b, r, (ndp_base)base, &bytes);
        NDP_TRY(want(b, block, NDP_MEM_ACTIVATIONS, bytes));
        in->bases[base] = *block;
    }
    NDP_TRY(want(b, &work, NDP_MEM_WORK, list->work_bytes));
    in->bases[NDP_BASE_WORK] = work;
    return NDP_OK;
}

static ndp_status emit_run(ndp_builder *b, int index) {
    const ndp_unit_run *r = &b->runs[index];
    const ndp_unit *unit = &b->m->units[r->unit];
    ndp_instr in = {.code = NDP_DO_RUN,
                    .buffer = NDP_NONE,
                    .unit = r->unit,
                    .micro_batch = r->micro_batch,
                    .phase = r->phase,
                    .entry = r->entry,
                    .what = unit->name};
    for (int i = 0; i < NDP_BASE_DATA; i++)
        in.bases[i] = NDP_NONE;
    for (int s = 0; s < NDP_SLOTS; s++)
        if (unit->buffers[s] != NDP_NONE && ndp_list_names(ndp_list_of_run(b, index), NDP_BASE_PARAM + s))
            in.bases[NDP_BASE_PARAM + s] = b->gathered[unit->buffers[s]];
    NDP_TRY(ndp_reduce_bind(b, index, &in));
    NDP_TRY(bind_activations(b, index, &in));
    return ndp_emit(b->p, in);
}

/* ---- the whole ---- */

static ndp_status emit_runs(ndp_builder *b) {
    ndp_reduce_plan(b);
    for (int r = 0; r < b->n_runs; r++) {
        NDP_TRY(ndp_gather_before(b, r));
        NDP_TRY(ndp_messages_before(b, r));
        NDP_TRY(emit_run(b, r));
        NDP_TRY(ndp_messages_after(b, r));
        NDP_TRY(ndp_reduce_after(b, r));
        ndp_gather_release(b, r);
    }
    NDP_TRY(ndp_messages_finish(b));
    return ndp_reduce_finish(b);
}

static ndp_status emit_all(ndp_builder *b) {
    bool train = b->m->opts.mode == NDP_MODEL_TRAIN;
    NDP_TRY(ndp_emit_loss_scale(b));
    NDP_TRY(emit_runs(b));
    NDP_TRY(ndp_emit_scalar(b->p, NDP_GROUP_LOSS, offsetof(ndp_scalars, loss), NDP_F64, "loss"));
    NDP_TRY(ndp_emit_scalar(b->p, NDP_GROUP_PP, offsetof(ndp_scalars, loss), NDP_F64, "loss"));
    b->p->first_update = b->p->n;
    return train ? ndp_emit_update(b) : NDP_OK;
}

/* There are at most four runs per unit and micro-batch. */
static ndp_status take_tables(ndp_builder *b) {
    size_t accumulation = (size_t)b->p->opts.step.accumulation, buffers = (size_t)b->m->n_buffers;
    size_t units = (size_t)b->m->n_units, slots = ((size_t)b->m->units[units - 1].number + 2) * accumulation;
    size_t peers = (size_t)b->p->opts.step.mesh.layout.size[NDP_PP];
    b->runs = calloc(4 * units * accumulation + 1, sizeof *b->runs);
    b->slots = malloc(slots * sizeof *b->slots);
    b->gradients = calloc(buffers, sizeof *b->gradients);
    ndp_gradient_writes *writes = calloc(buffers * accumulation + 1, sizeof *writes);
    b->gathered = malloc(2 * buffers * sizeof *b->gathered);
    b->sends = calloc(peers, sizeof *b->sends);
    if (!b->runs || !b->slots || !b->gradients || !writes || !b->gathered || !b->sends) {
        free(writes);
        return NDP_FAIL(NDP_ENOMEM, "no memory to build the step program");
    }
    b->begun = b->gathered + buffers;
    for (size_t i = 0; i < slots; i++)
        b->slots[i] = (ndp_slot){NDP_NONE, NDP_NONE, NDP_NONE, NDP_NONE, NDP_NONE, {NDP_NONE, NDP_NONE}, {false}};
    for (size_t i = 0; i < buffers; i++) {
        b->gradients[i] = (ndp_gradient){.block = NDP_NONE, .writes = writes + i * accumulation, .last = NDP_NONE};
        b->gathered[i] = b->begun[i] = NDP_NONE;
    }
    return NDP_OK;
}

static void builder_release(ndp_builder *b) {
    if (b->gradients)
        free(b->gradients[0].writes);
    free(b->gradients);
    free(b->runs);
    free(b->slots);
    free(b->gathered);
    free(b->sends);
}

static ndp_status build(ndp_builder *b, const ndp_schedule *given) {
    ndp_schedule own = {0};
    ndp_status st = ndp_own_all(b->p);
    if (st == NDP_OK)
        st = take_tables(b);
    if (st == NDP_OK && !given)
        st = ndp_schedule_in_order(b->m, b->p->opts.step.accumulation, &own);
    if (st == NDP_OK)
        st = ndp_schedule_check(given ? given : &own, b->m, b->p->opts.step.accumulation);
    if (st == NDP_OK)
        list_runs(b, given ? given : &own);
    ndp_schedule_release(&own);
    NDP_TRY(st);
    NDP_TRY(emit_all(b));
    NDP_TRY(ndp_memory_plan(b->p));
    return ndp_staging_plan(b->p);
}

ndp_status ndp_program_build(const ndp_program_opts *opts, ndp_program *out) {
    ndp_program p = {.opts = *opts};
    ndp_builder b = {.p = &p, .m = opts->model, .pending_scatter = NDP_NONE, .pending_replicas = NDP_NONE};
    ndp_status st = build(&b, opts->step.schedule);
    builder_release(&b);
    p.opts.step.schedule = NULL; /* the caller's */
    if (st != NDP_OK) {
        ndp_trail_add(__FILE__, __LINE__);
        ndp_program_release(&p);
        return st;
    }
    *out = p;
    return NDP_OK;
}

void ndp_program_release(ndp_program *p) {
    free(p->instrs);
    ndp_arena_release(&p->arena);
    free(p->blocks);
    free(p->owned);
    ndp_staging_release(&p->staging);
    *p = (ndp_program){0};
}
