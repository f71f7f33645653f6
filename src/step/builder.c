/* The builder: makes the step program of a rank from a schedule. Engines call ndp_program_build.
 *
 *     schedule -> runs (unit, phase, micro-batch)
 *     for each run: wait for its gathers and messages, begin the next | RUN | send | reduce the gradients that are
 *         complete | release
 *     loss scale before all runs; norm, clipping and updates after them; then the memory plan
 *
 * graph/passes.h lists the passes. A step of many micro-batches is built as one of fewer, with two copies of its middle
 * (ndp_schedule_find_body), and folded: the copies become a range that repeats (repeats.c). If they differ, every
 * micro-batch is listed.
 *
 * A slot holds the blocks of one unit and micro-batch, so runs of several micro-batches may interleave. */
#include "step/program_parts.h"

#include "parallel/recompute.h"
#include "step/staging.h"
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

static ndp_status pass_runs(ndp_builder *b) {
    const ndp_schedule *s = b->schedule;
    bool train = b->m->opts.mode == NDP_MODEL_TRAIN;
    for (int i = 0; i < s->n; i++) {
        const ndp_planned_run *r = &s->runs[i];
        b->entry = i, b->taken = r->taken;
        for (int u = r->first_unit; r->action == NDP_ACTION_FORWARD && u < r->end_unit; u++)
            add_run(b, u, !train || recomputes(b, u) ? NDP_FORWARD_DROP : NDP_FORWARD, r->micro_batch);
        for (int u = r->end_unit - 1; r->action != NDP_ACTION_FORWARD && u >= r->first_unit; u--)
            add_gradients(b, r, u);
    }
    return NDP_OK;
}

/* ---- a run's memory ---- */

/* The block that a run of `r` has as `base`; *bytes: its size, *role: its role. Boundary values are in the slots of
 * both their units. */
static int *block_of(const ndp_builder *b, const ndp_unit_run *r, ndp_base base, size_t *bytes, int *role) {
    const ndp_unit_program *u = program_of(b, r->unit);
    int number = b->m->units[r->unit].number;
    ndp_slot *s = ndp_slot_of(b, number, r->micro_batch);
    switch (base) {
    case NDP_BASE_INPUT:
        *bytes = u->input_bytes, *role = ndp_block_role(number - 1, NDP_SLOT_OUTPUT);
        return &ndp_slot_of(b, number - 1, r->micro_batch)->output;
    case NDP_BASE_OUTPUT:
        *bytes = u->output_bytes, *role = ndp_block_role(number, NDP_SLOT_OUTPUT);
        return &s->output;
    case NDP_BASE_GRAD_OUTPUT:
        *bytes = u->output_bytes, *role = ndp_block_role(number + 1, NDP_SLOT_GRAD_INPUT);
        return &ndp_slot_of(b, number + 1, r->micro_batch)->grad_input;
    case NDP_BASE_GRAD_INPUT:
        *bytes = u->grad_input_bytes, *role = ndp_block_role(number, NDP_SLOT_GRAD_INPUT);
        return &s->grad_input;
    case NDP_BASE_SAVED:
        *bytes = u->saved_bytes, *role = ndp_block_role(number, NDP_SLOT_SAVED);
        return &s->saved;
    case NDP_BASE_SAVED_INPUT:
        *bytes = u->saved_input_bytes, *role = ndp_block_role(number, NDP_SLOT_SAVED_INPUT);
        return &s->saved_input;
    case NDP_BASE_KEPT:
        *bytes = u->kept_bytes, *role = ndp_block_role(number, NDP_SLOT_SELECTED);
        return &s->kept;
    default:
        *bytes = u->between_bytes, *role = ndp_block_role(number, NDP_SLOT_BETWEEN);
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
        int role;
        bool again = r->phase == NDP_RECOMPUTE && base == NDP_BASE_OUTPUT;
        if (!ndp_list_names(list, base) || again)
            continue;
        int *block = block_of(b, r, (ndp_base)base, &bytes, &role);
        if (*block == NDP_NONE && bytes > 0)
            NDP_TRY(ndp_block_of_role(b->p, bytes, role, r->micro_batch, block));
        in->bases[base] = *block;
    }
    if (list->work_bytes > 0)
        NDP_TRY(ndp_block_add(b->p, NDP_MEM_WORK, list->work_bytes, &work));
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
                    .role = NDP_NONE,
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

static ndp_status pass_micro_batches(ndp_builder *b) {
    ndp_reduce_plan(b);
    for (int r = 0, entry = 0; r < b->n_runs; r++) {
        while (entry <= b->runs[r].entry)
            b->first_of[entry++] = b->p->n;
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

static ndp_status pass_own(ndp_builder *b) { return ndp_own_all(b->p); }

static ndp_status pass_loss_scale(ndp_builder *b) { return ndp_emit_loss_scale(b); }

static ndp_status pass_loss(ndp_builder *b) {
    NDP_TRY(ndp_emit_loss(b->p, NDP_GROUP_LOSS));
    NDP_TRY(ndp_emit_loss(b->p, NDP_GROUP_PP));
    NDP_TRY(ndp_emit_loads(b->p));
    b->p->first_norm = b->p->first_update = b->p->n;
    return NDP_OK;
}

static ndp_status pass_update(ndp_builder *b) { return ndp_emit_update(b); }

/* Leaves the program as it is where the copies differ. */
static ndp_status pass_fold(ndp_builder *b) {
    const ndp_schedule_body *body = b->body;
    NDP_TRY(ndp_memory_least(b->p, &b->least));
    int first = b->first_of[body->first], n = b->first_of[body->first + body->n] - first;
    return ndp_program_fold(b->p, first, n, body->times, body->micro_batches, &b->folded);
}

static ndp_status pass_memory(ndp_builder *b) { return ndp_memory_plan(b->p); }

static ndp_status pass_staging(ndp_builder *b) { return ndp_staging_plan(b->p); }

/* ---- the passes, as graph/passes.h lists them ---- */

static bool when_always(const ndp_builder *b) {
    (void)b;
    return true;
}

static bool when_training(const ndp_builder *b) { return b->m->opts.mode == NDP_MODEL_TRAIN; }

static bool when_repeated(const ndp_builder *b) { return b->body; }

/* Copies that differ end the work on a short list. */
static bool when_alike(const ndp_builder *b) { return !b->body || b->folded; }

static bool when_staged(const ndp_builder *b) { return when_alike(b) && ndp_exec_stages(b->p->opts.step.exec); }

static ndp_status run_passes(ndp_builder *b) {
    static const struct {
        bool (*when)(const ndp_builder *b);
        ndp_status (*run)(ndp_builder *b);
    } rows[] = {
#define ROW(name, when, writes, does) {when_##when, pass_##name},
        NDP_STEP_PASSES(ROW)
#undef ROW
    };
    for (int i = 0; i < NDP_COUNT(rows); i++) {
        int before = b->p->n;
        if (!rows[i].when(b))
            continue;
        NDP_TRY(rows[i].run(b));
        ndp_pass_note(&b->p->passes, NDP_PASS_own + i, NDP_PASS_own, b->p->n - before);
    }
    return NDP_OK;
}

/* There are at most four runs per unit and micro-batch. */
static ndp_status take_tables(ndp_builder *b) {
    size_t accumulation = (size_t)b->micro_batches, buffers = (size_t)b->m->n_buffers;
    size_t units = (size_t)b->m->n_units, slots = ((size_t)b->m->units[units - 1].number + 2) * accumulation;
    size_t peers = (size_t)b->p->opts.step.mesh.layout.size[NDP_PP];
    b->runs = calloc(4 * units * accumulation + 1, sizeof *b->runs);
    b->slots = malloc(slots * sizeof *b->slots);
    b->gradients = calloc(buffers, sizeof *b->gradients);
    ndp_gradient_writes *writes = calloc(buffers * accumulation + 1, sizeof *writes);
    b->gathered = malloc(2 * buffers * sizeof *b->gathered);
    b->sends = calloc(peers, sizeof *b->sends);
    b->first_of = calloc((size_t)b->schedule->n + 1, sizeof *b->first_of);
    if (!b->first_of || !b->runs || !b->slots || !b->gradients || !writes || !b->gathered || !b->sends) {
        free(writes);
        return NDP_FAIL(NDP_ENOMEM, "not enough memory to build the step program");
    }
    b->begun = b->gathered + buffers;
    for (size_t i = 0; i < slots; i++)
        b->slots[i] =
            (ndp_slot){NDP_NONE, NDP_NONE, NDP_NONE, NDP_NONE, NDP_NONE, NDP_NONE, {NDP_NONE, NDP_NONE}, {false}};
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
    free(b->first_of);
}

static bool needs_enough(const ndp_program *p) {
    ndp_budget budget;
    ndp_program_budget(p, &budget);
    return budget.total <= p->opts.step.enough;
}

/* A program of `micro_batches` micro-batches, planned. With a body, `s` has two copies of it, which are folded. *done:
 * they were, not differing. *tight: the list that was folded needs no less memory, however it is planned, nor does one
 * of more copies. */
static ndp_status build(const ndp_program_opts *opts, const ndp_schedule *s, int micro_batches,
                        const ndp_schedule_body *body, ndp_program *p, bool *done, bool *tight) {
    *p = (ndp_program){.opts = *opts};
    ndp_builder b = {.p = p,
                     .m = opts->model,
                     .micro_batches = micro_batches,
                     .schedule = s,
                     .body = body,
                     .pending_scatter = NDP_NONE,
                     .pending_replicas = NDP_NONE};
    ndp_status st = take_tables(&b);
    if (st == NDP_OK)
        st = run_passes(&b);
    *done = b.folded;
    *tight = st == NDP_OK && *done &&
             (p->bytes[NDP_REGION_ARENA] <= b.least || opts->step.fold == NDP_FOLD_ALWAYS || needs_enough(p));
    if (*done && opts->step.unplaced && b.least < p->bytes[NDP_REGION_ARENA])
        p->bytes[NDP_REGION_ARENA] = b.least;
    builder_release(&b);
    return st;
}

/* Folds the middle of the step, if it is long enough and its micro-batches are alike. Release *p in any case. */
static ndp_status build_folded(const ndp_program_opts *opts, const ndp_schedule *s, ndp_program *p, bool *done,
                               bool *tight) {
    enum { COPIES = 2 };
    ndp_schedule_body body = ndp_schedule_find_body(s, opts->model);
    ndp_schedule few = {0};
    *done = *tight = false;
    if (body.times == 0 || opts->step.fold == NDP_FOLD_NEVER)
        return NDP_OK;
    NDP_TRY(ndp_schedule_shorten(s, &body, COPIES, &few));
    int left = opts->step.accumulation - (body.times - COPIES) * body.micro_batches;
    ndp_status st = build(opts, &few, left, &body, p, done, tight);
    ndp_schedule_release(&few);
    return st;
}

/* A folded program is taken if it needs no more memory. Slots that rotate are held over the whole body: where other
 * memory is at its peak while some are free, a list needs less. */
static ndp_status build_scheduled(const ndp_program_opts *opts, const ndp_schedule *s, ndp_program *p) {
    bool done, tight, none;
    ndp_program listed = {0};
    NDP_TRY(ndp_schedule_check(s, opts->model, opts->step.accumulation));
    NDP_TRY(build_folded(opts, s, p, &done, &tight));
    ndp_status st = tight ? NDP_OK : build(opts, s, opts->step.accumulation, NULL, &listed, &none, &none);
    bool folded = done && (tight || p->bytes[NDP_REGION_ARENA] <= listed.bytes[NDP_REGION_ARENA]);
    ndp_program_release(folded ? &listed : p);
    if (!folded)
        *p = listed;
    p->opts.step.schedule = NULL; /* the caller's */
    return st;
}

/* Gives back what growing lists took ahead: a plan has the programs of many ranks. */
static void trim(ndp_program *p) {
    ndp_instr *instrs = p->n > 0 ? realloc(p->instrs, (size_t)p->n * sizeof *instrs) : NULL;
    ndp_block *blocks = p->n_blocks > 0 ? realloc(p->blocks, (size_t)p->n_blocks * sizeof *blocks) : NULL;
    p->instrs = instrs ? instrs : p->instrs;
    p->blocks = blocks ? blocks : p->blocks;
    p->capacity = instrs ? p->n : p->capacity;
    p->block_capacity = blocks ? p->n_blocks : p->block_capacity;
}

ndp_status ndp_program_build(const ndp_program_opts *opts, ndp_program *out) {
    ndp_program p = {0};
    ndp_schedule own = {0};
    ndp_status st = opts->step.schedule ? NDP_OK : ndp_schedule_in_order(opts->model, opts->step.accumulation, &own);
    if (st == NDP_OK)
        st = build_scheduled(opts, opts->step.schedule ? opts->step.schedule : &own, &p);
    ndp_schedule_release(&own);
    trim(&p);
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
    free(p->repeats.items);
    ndp_arena_release(&p->arena);
    free(p->blocks);
    free(p->owned);
    ndp_staging_release(&p->staging);
    *p = (ndp_program){0};
}
