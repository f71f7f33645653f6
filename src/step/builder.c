/* The builder. First the runs (which unit, phase, micro-batch, in which order), then, around them, the gathers that
 * they need, the reductions that they finish, and the update. Memory follows: a block lives from the first instruction
 * that names it to the last. */
#include "step/builder.h"

#include "parallel/recompute.h"
#include <stdlib.h>
#include <string.h>

static const ndp_list *list_of(const ndp_builder *b, const ndp_planned_run *r) {
    return &b->p->opts.units[b->m->units[r->unit].graph].lists[r->phase];
}

const ndp_list *ndp_list_of_run(const ndp_builder *b, int r) { return list_of(b, &b->runs[r]); }

/* ---- runs ---- */

static void add_run(ndp_builder *b, int unit, ndp_phase phase, int micro_batch) {
    ndp_planned_run r = {unit, micro_batch, phase};
    if (list_of(b, &r)->n > 0)
        b->runs[b->n_runs++] = r;
}

static bool recomputes(const ndp_builder *b, int unit) {
    return b->p->opts.recompute && ndp_recompute_pays(&b->p->opts.units[b->m->units[unit].graph]);
}

static void list_runs(ndp_builder *b) {
    bool train = b->m->opts.mode == NDP_MODEL_TRAIN;
    for (int mb = 0; mb < b->p->opts.accumulation; mb++) {
        for (int u = 0; u < b->m->n_units; u++)
            add_run(b, u, !train || recomputes(b, u) ? NDP_FORWARD_DROP : NDP_FORWARD, mb);
        for (int u = b->m->n_units - 1; train && u >= 0; u--) {
            if (recomputes(b, u))
                add_run(b, u, NDP_RECOMPUTE, mb);
            add_run(b, u, NDP_BACKWARD_INPUT, mb);
            add_run(b, u, NDP_BACKWARD_WEIGHT, mb);
        }
    }
}

/* ---- a run's memory ---- */

static ndp_status want(ndp_builder *b, int *block, ndp_memory_class class, size_t bytes) {
    return *block != NDP_NONE || bytes == 0 ? NDP_OK : ndp_block_add(b->p, class, bytes, block);
}

static ndp_status bind_activations(ndp_builder *b, const ndp_planned_run *r, ndp_instr *in) {
    const ndp_unit_program *u = &b->p->opts.units[b->m->units[r->unit].graph];
    bool backward = r->phase == NDP_BACKWARD_INPUT || r->phase == NDP_BACKWARD_WEIGHT;
    int work = NDP_NONE;
    if (!backward && r->phase != NDP_RECOMPUTE) {
        b->x[r->unit + 1] = b->saved[r->unit] = b->between[r->unit] = b->dx[r->unit] = NDP_NONE;
        NDP_TRY(want(b, &b->x[r->unit + 1], NDP_MEM_ACTIVATIONS, u->output_bytes));
        in->bases[NDP_BASE_OUTPUT] = b->x[r->unit + 1];
    }
    if (r->phase != NDP_FORWARD_DROP) {
        NDP_TRY(want(b, &b->saved[r->unit], NDP_MEM_ACTIVATIONS, u->saved_bytes));
        in->bases[NDP_BASE_SAVED] = b->saved[r->unit];
    }
    if (backward) {
        NDP_TRY(want(b, &b->dx[r->unit], NDP_MEM_ACTIVATIONS, u->input_bytes));
        NDP_TRY(want(b, &b->between[r->unit], NDP_MEM_ACTIVATIONS, u->between_bytes));
        in->bases[NDP_BASE_GRAD_INPUT] = b->dx[r->unit];
        in->bases[NDP_BASE_GRAD_OUTPUT] = u->output_bytes ? b->dx[r->unit + 1] : NDP_NONE;
        in->bases[NDP_BASE_BETWEEN] = b->between[r->unit];
    }
    if (!backward || list_of(b, r)->reads_input)
        in->bases[NDP_BASE_INPUT] = u->input_bytes ? b->x[r->unit] : NDP_NONE;
    NDP_TRY(want(b, &work, NDP_MEM_WORK, list_of(b, r)->work_bytes));
    in->bases[NDP_BASE_WORK] = work;
    return NDP_OK;
}

static ndp_status emit_run(ndp_builder *b, int index) {
    const ndp_planned_run *r = &b->runs[index];
    const ndp_unit *unit = &b->m->units[r->unit];
    ndp_instr in = {.code = NDP_DO_RUN,
                    .buffer = NDP_NONE,
                    .unit = r->unit,
                    .micro_batch = r->micro_batch,
                    .phase = r->phase,
                    .what = unit->name};
    for (int i = 0; i < NDP_BASE_DATA; i++)
        in.bases[i] = NDP_NONE;
    for (int s = 0; s < NDP_SLOTS; s++)
        if (unit->buffers[s] != NDP_NONE && list_of(b, r)->reads[s])
            in.bases[NDP_BASE_PARAM + s] = b->gathered[unit->buffers[s]];
    NDP_TRY(ndp_reduce_bind(b, index, &in));
    NDP_TRY(bind_activations(b, r, &in));
    return ndp_emit(b->p, in);
}

/* ---- the whole ---- */

static ndp_status emit_runs(ndp_builder *b) {
    for (int r = 0; r < b->n_runs; r++) {
        if (r == 0 || b->runs[r].micro_batch != b->runs[r - 1].micro_batch)
            ndp_reduce_plan(b, r);
        NDP_TRY(ndp_gather_before(b, r));
        NDP_TRY(emit_run(b, r));
        NDP_TRY(ndp_reduce_after(b, r));
        ndp_gather_release(b, r);
    }
    return ndp_reduce_finish(b);
}

static ndp_status emit_code(ndp_builder *b, ndp_opcode code) {
    return ndp_emit(b->p, (ndp_instr){.code = code, .what = "", .buffer = NDP_NONE});
}

static ndp_status emit_update(ndp_builder *b) {
    NDP_TRY(ndp_reduce_copies(b));
    NDP_TRY(emit_code(b, NDP_DO_NORM));
    NDP_TRY(ndp_emit_scalar(b->p, NDP_GROUP_SHARD, offsetof(ndp_scalars, squares), NDP_F64, "grad_norm"));
    NDP_TRY(ndp_emit_scalar(b->p, NDP_GROUP_TP, offsetof(ndp_scalars, squares), NDP_F64, "grad_norm"));
    NDP_TRY(emit_code(b, NDP_DO_CLIP));
    for (int i = 0; i < b->m->n_buffers; i++)
        NDP_TRY(ndp_emit(b->p, (ndp_instr){.code = NDP_DO_UPDATE, .buffer = i, .what = b->m->buffers[i].name}));
    return NDP_OK;
}

static ndp_status emit_all(ndp_builder *b) {
    bool train = b->m->opts.mode == NDP_MODEL_TRAIN;
    list_runs(b);
    NDP_TRY(emit_code(b, NDP_DO_COUNT));
    NDP_TRY(ndp_emit_scalar(b->p, NDP_GROUP_LOSS, offsetof(ndp_scalars, valid), NDP_I64, "valid_tokens"));
    NDP_TRY(emit_code(b, NDP_DO_SCALE));
    NDP_TRY(emit_runs(b));
    NDP_TRY(ndp_emit_scalar(b->p, NDP_GROUP_LOSS, offsetof(ndp_scalars, loss), NDP_F64, "loss"));
    return train ? emit_update(b) : NDP_OK;
}

static ndp_status builder_init(ndp_builder *b, ndp_program *p) {
    const ndp_model *m = p->opts.model;
    size_t units = (size_t)m->n_units + 1, buffers = (size_t)m->n_buffers;
    *b = (ndp_builder){.p = p, .m = m, .pending_scatter = NDP_NONE, .pending_replicas = NDP_NONE};
    b->runs = calloc(units * 4 * (size_t)p->opts.accumulation, sizeof *b->runs);
    int *ints = malloc((4 * units + 4 * buffers) * sizeof *ints);
    b->written = calloc(buffers, sizeof *b->written);
    if (!b->runs || !ints || !b->written) {
        free(ints);
        return NDP_FAIL(NDP_ENOMEM, "no memory to build the step program");
    }
    for (size_t i = 0; i < 4 * units + 4 * buffers; i++)
        ints[i] = NDP_NONE;
    b->x = ints, b->dx = ints + units, b->saved = ints + 2 * units, b->between = ints + 3 * units;
    b->gathered = ints + 4 * units, b->begun = b->gathered + buffers, b->grad = b->begun + buffers;
    b->last_write = b->grad + buffers;
    return NDP_OK;
}

ndp_status ndp_program_build(const ndp_program_opts *opts, ndp_program *out) {
    ndp_program p = {.opts = *opts};
    ndp_builder b = {0};
    ndp_status st = ndp_own_all(&p);
    if (st == NDP_OK)
        st = builder_init(&b, &p);
    if (st == NDP_OK)
        st = emit_all(&b);
    if (st == NDP_OK)
        st = ndp_memory_plan(&p);
    free(b.runs);
    free(b.x);
    free(b.written);
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
    *p = (ndp_program){0};
}
