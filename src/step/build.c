/* The builder. First the runs (which unit, phase, micro-batch, in which order), then, around them, the gathers that
 * they need, the reductions that they finish, and the update.
 *
 * A gather begins one run before the buffer is read; a reduction is waited for when the next one begins, so that it has
 * the backward of one unit to hide behind, and the all_reduce of the replicas that of the unit after. Memory follows: a
 * block lives from the first instruction that names it to the last. */
#include "step/build.h"

#include "parallel/recompute.h"
#include <stdlib.h>
#include <string.h>

typedef struct run {
    int unit, micro_batch;
    ndp_phase phase;
} run;

typedef struct builder {
    ndp_program *p;
    const ndp_model *m;
    run *runs;
    int n_runs;
    /* by unit (boundary u lies before unit u): blocks of the micro-batch at hand */
    int *x, *dx, *saved, *between;
    /* by buffer */
    int *gathered;                         /* block with the whole buffer, NDP_NONE */
    int *begun;                            /* begin instruction of a gather under way, NDP_NONE */
    int *grad;                             /* block with the whole gradient, NDP_NONE */
    uint64_t *written;                     /* bit per segment: the gradient holds something already */
    int *last_write;                       /* per micro-batch: last run that writes the buffer's gradient */
    int pending_scatter, pending_replicas; /* begin instructions of the reductions under way */
    bool scatter_is_last;                  /* of the update: the replicas' all_reduce follows */
} builder;

/* ---- blocks and instructions ---- */

static ndp_status add_block(ndp_program *p, ndp_memory_class class, ndp_region region, bool persistent, size_t bytes,
                            int *out) {
    NDP_TRY(ndp_array_reserve(&p->blocks, &p->block_capacity, p->n_blocks + 1, sizeof *p->blocks));
    p->blocks[p->n_blocks] = (ndp_block){
        .class = class, .region = region, .persistent = persistent, .bytes = bytes, .first = -1, .last = -1};
    *out = p->n_blocks++;
    return NDP_OK;
}

static ndp_status persistent(ndp_program *p, ndp_memory_class class, ndp_region region, size_t bytes, ndp_place *out) {
    out->offset = 0;
    return add_block(p, class, region, true, bytes, &out->block);
}

static void touch(ndp_program *p, int block) {
    if (block == NDP_NONE)
        return;
    ndp_block *b = &p->blocks[block];
    if (b->first < 0)
        b->first = p->n;
    b->last = p->n;
}

/* Appends an instruction; its blocks live at least here. */
static ndp_status emit(ndp_program *p, ndp_instr in) {
    NDP_TRY(ndp_array_reserve(&p->instrs, &p->capacity, p->n + 1, sizeof *p->instrs));
    if (in.code == NDP_DO_RUN)
        for (int i = 0; i < NDP_BASE_DATA; i++)
            touch(p, in.bases[i]);
    if (in.code == NDP_DO_BEGIN || in.code == NDP_DO_WAIT) {
        touch(p, in.in.block);
        touch(p, in.out.block);
    }
    p->instrs[p->n++] = in;
    return NDP_OK;
}

static ndp_status emit_begin(ndp_program *p, ndp_instr in, int *index) {
    in.code = NDP_DO_BEGIN;
    in.partner = NDP_NONE;
    *index = p->n;
    return emit(p, in);
}

static ndp_status emit_wait(ndp_program *p, int begin) {
    ndp_instr in = p->instrs[begin];
    in.code = NDP_DO_WAIT;
    in.partner = begin;
    p->instrs[begin].partner = p->n;
    return emit(p, in);
}

static ndp_status emit_comm(ndp_program *p, ndp_instr in) {
    int begin;
    NDP_TRY(emit_begin(p, in, &begin));
    return emit_wait(p, begin);
}

static ndp_status emit_code(ndp_program *p, ndp_opcode code) {
    return emit(p, (ndp_instr){.code = code, .partner = NDP_NONE});
}

static const ndp_list *list_of(const builder *b, const run *r) {
    return &b->p->opts.units[b->m->units[r->unit].graph].lists[r->phase];
}

/* ---- what a rank keeps ---- */

static ndp_status own_buffer(ndp_program *p, int i) {
    const ndp_model *m = p->opts.model;
    ndp_owned *o = &p->owned[i];
    const ndp_place nowhere = {NDP_NONE, 0};
    *o = (ndp_owned){.weights = nowhere, .send = nowhere, .state = {nowhere, nowhere}};
    o->shard = ndp_shard_buffer(m, i, &p->opts.mesh, p->opts.node_ranks, p->opts.reshard);
    const ndp_shard *s = &o->shard;
    size_t compute = ndp_dtype_size(m->opts.compute), master = ndp_dtype_size(m->opts.master), n = (size_t)s->slice;
    ndp_region home = m->opts.mode == NDP_MODEL_TRAIN ? NDP_REGION_ARENA : NDP_REGION_WEIGHTS;
    if (s->in_place)
        NDP_TRY(persistent(p, NDP_MEM_WEIGHTS, NDP_REGION_SHARED, n * (size_t)s->shards * compute, &o->weights));
    else if (s->shards == 1 && !s->same)
        NDP_TRY(persistent(p, NDP_MEM_WEIGHTS, home, n * compute, &o->weights));
    if (s->in_place && s->same)
        o->master = (ndp_place){o->weights.block, (size_t)s->index * n * master};
    else
        NDP_TRY(persistent(p, NDP_MEM_MASTER, home, n * master, &o->master));
    if (s->shards == 1 && s->same)
        o->weights = o->master;
    if (s->same)
        o->send = o->master;
    else if (s->in_place || s->shards == 1)
        o->send = (ndp_place){o->weights.block, s->in_place ? (size_t)s->index * n * compute : 0};
    else
        NDP_TRY(persistent(p, NDP_MEM_WEIGHTS, home, n * compute, &o->send));
    if (m->opts.mode != NDP_MODEL_TRAIN)
        return NDP_OK;
    NDP_TRY(persistent(p, NDP_MEM_GRADIENTS, NDP_REGION_ARENA, n * master, &o->grad));
    for (int k = 0; k < p->opts.optimizer_states; k++)
        NDP_TRY(persistent(p, NDP_MEM_OPTIMIZER, NDP_REGION_ARENA, n * master, &o->state[k]));
    return NDP_OK;
}

static ndp_status own_all(ndp_program *p) {
    const ndp_model *m = p->opts.model;
    p->owned = calloc((size_t)m->n_buffers, sizeof *p->owned);
    if (!p->owned)
        return NDP_FAIL(NDP_ENOMEM, "no memory for the program of %d units", m->n_units);
    for (int i = 0; i < m->n_buffers; i++)
        NDP_TRY(own_buffer(p, i));
    p->batch_stride = (size_t)(3 * m->tokens + 2 * m->queries + m->keys) * sizeof(int32_t);
    NDP_TRY(persistent(p, NDP_MEM_DATA, NDP_REGION_ARENA, p->batch_stride * (size_t)p->opts.accumulation, &p->batch));
    size_t real = ndp_dtype_size(m->opts.compute == NDP_F64 ? NDP_F64 : NDP_F32);
    NDP_TRY(persistent(p, NDP_MEM_DATA, NDP_REGION_ARENA, (size_t)(m->opts.positions * m->facts.head_dim) * real,
                       &p->rope));
    return persistent(p, NDP_MEM_DATA, NDP_REGION_ARENA, sizeof(ndp_scalars), &p->scalars);
}

/* ---- runs ---- */

static void add_run(builder *b, int unit, ndp_phase phase, int micro_batch) {
    run r = {unit, micro_batch, phase};
    if (list_of(b, &r)->n > 0)
        b->runs[b->n_runs++] = r;
}

static bool recomputes(const builder *b, int unit) {
    return b->p->opts.recompute && ndp_recompute_pays(&b->p->opts.units[b->m->units[unit].graph]);
}

static void list_runs(builder *b) {
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

static bool run_reads(const builder *b, int r, int buffer) {
    const ndp_unit *u = &b->m->units[b->runs[r].unit];
    const ndp_list *list = list_of(b, &b->runs[r]);
    for (int s = 0; s < NDP_SLOTS; s++)
        if (u->buffers[s] == buffer && list->reads[s])
            return true;
    return false;
}

/* ---- gathers ---- */

static ndp_status gather_begin(builder *b, int buffer) {
    ndp_program *p = b->p;
    const ndp_owned *o = &p->owned[buffer];
    if (b->gathered[buffer] != NDP_NONE || b->begun[buffer] != NDP_NONE)
        return NDP_OK;
    if (o->shard.shards == 1) {
        b->gathered[buffer] = o->weights.block;
        return NDP_OK;
    }
    ndp_place out = o->weights;
    if (out.block == NDP_NONE) {
        size_t bytes = (size_t)(o->shard.slice * o->shard.shards) * ndp_dtype_size(b->m->opts.compute);
        NDP_TRY(add_block(p, NDP_MEM_WEIGHTS, NDP_REGION_ARENA, false, bytes, &out.block));
    }
    return emit_begin(p,
                      (ndp_instr){.kind = NDP_ALL_GATHER,
                                  .group = NDP_GROUP_SHARD,
                                  .in = o->send,
                                  .out = out,
                                  .count = o->shard.slice,
                                  .type = b->m->opts.compute,
                                  .in_place = o->shard.in_place,
                                  .what = b->m->buffers[buffer].name,
                                  .buffer = buffer},
                      &b->begun[buffer]);
}

static ndp_status gather_wait(builder *b, int buffer) {
    NDP_TRY(gather_begin(b, buffer));
    if (b->gathered[buffer] != NDP_NONE)
        return NDP_OK;
    NDP_TRY(emit_wait(b->p, b->begun[buffer]));
    b->gathered[buffer] = b->p->instrs[b->begun[buffer]].out.block;
    b->begun[buffer] = NDP_NONE;
    return NDP_OK;
}

/* The buffers that run r reads and that are not there: begins (or waits for) their gathers; *any says if there were. */
static ndp_status gather_for(builder *b, int r, bool wait, bool *any) {
    const ndp_unit *u = &b->m->units[b->runs[r].unit];
    *any = false;
    for (int s = 0; s < NDP_SLOTS; s++) {
        int buffer = u->buffers[s];
        if (buffer == NDP_NONE || !run_reads(b, r, buffer) || b->gathered[buffer] != NDP_NONE)
            continue;
        *any = true;
        NDP_TRY(wait ? gather_wait(b, buffer) : gather_begin(b, buffer));
    }
    return NDP_OK;
}

/* Begins the gathers of the next run that lacks something. Weight gradients read no parameters, so it may be two or
 * three runs away. */
static ndp_status prefetch(builder *b, int r) {
    bool any = false;
    for (int next = r + 1; next < b->n_runs && next <= r + 3 && !any; next++)
        NDP_TRY(gather_for(b, next, false, &any));
    return NDP_OK;
}

/* Lets go of buffers whose next use is far away: the last unit's stay for its backward. */
static void release_gathered(builder *b, int r) {
    for (int s = 0; s < NDP_SLOTS; s++) {
        int buffer = b->m->units[b->runs[r].unit].buffers[s];
        if (buffer == NDP_NONE)
            continue;
        const ndp_shard *shard = &b->p->owned[buffer].shard;
        if (shard->shards == 1 || shard->in_place || shard->keep)
            continue;
        bool soon = false;
        for (int next = r + 1; next < b->n_runs && next <= r + 2; next++)
            soon |= run_reads(b, next, buffer);
        if (!soon)
            b->gathered[buffer] = NDP_NONE;
    }
}

/* ---- gradients ---- */

static ndp_status begin_all_reduce(builder *b, int buffer) {
    const ndp_owned *o = &b->p->owned[buffer];
    return emit_begin(b->p,
                      (ndp_instr){.kind = NDP_ALL_REDUCE,
                                  .group = NDP_GROUP_REPLICATE,
                                  .in = o->grad,
                                  .out = o->grad,
                                  .count = o->shard.slice,
                                  .type = b->m->opts.master,
                                  .what = b->m->buffers[buffer].name,
                                  .buffer = buffer},
                      &b->pending_replicas);
}

/* Moves the reductions under way on by one: the replicas' one ends, the scatter ends and goes on to the replicas. */
static ndp_status advance_reductions(builder *b) {
    if (b->pending_replicas != NDP_NONE)
        NDP_TRY(emit_wait(b->p, b->pending_replicas));
    b->pending_replicas = NDP_NONE;
    if (b->pending_scatter == NDP_NONE)
        return NDP_OK;
    int buffer = b->p->instrs[b->pending_scatter].buffer;
    NDP_TRY(emit_wait(b->p, b->pending_scatter));
    b->pending_scatter = NDP_NONE;
    return b->scatter_is_last && b->p->owned[buffer].shard.replicas > 1 ? begin_all_reduce(b, buffer) : NDP_OK;
}

static ndp_status finish_reductions(builder *b) {
    while (b->pending_scatter != NDP_NONE || b->pending_replicas != NDP_NONE)
        NDP_TRY(advance_reductions(b));
    return NDP_OK;
}

/* The gradient of a buffer is whole for this micro-batch: it goes to its owners, after the last one to the replicas. */
static ndp_status reduce(builder *b, int buffer, int micro_batch) {
    const ndp_owned *o = &b->p->owned[buffer];
    bool last = micro_batch == b->p->opts.accumulation - 1;
    NDP_TRY(advance_reductions(b));
    if (o->shard.shards == 1)
        return last && o->shard.replicas > 1 ? begin_all_reduce(b, buffer) : NDP_OK;
    NDP_TRY(emit_begin(b->p,
                       (ndp_instr){.kind = NDP_REDUCE_SCATTER,
                                   .group = NDP_GROUP_SHARD,
                                   .in = {b->grad[buffer], 0},
                                   .out = o->grad,
                                   .count = o->shard.slice,
                                   .type = b->m->opts.master,
                                   .add = micro_batch > 0,
                                   .what = b->m->buffers[buffer].name,
                                   .buffer = buffer},
                       &b->pending_scatter));
    b->scatter_is_last = last;
    b->grad[buffer] = NDP_NONE;
    b->written[buffer] = 0;
    return NDP_OK;
}

static ndp_status reduce_finished(builder *b, int r) {
    for (int s = 0; s < NDP_SLOTS; s++) {
        int buffer = b->m->units[b->runs[r].unit].buffers[s];
        if (buffer != NDP_NONE && b->last_write[buffer] == r)
            NDP_TRY(reduce(b, buffer, b->runs[r].micro_batch));
    }
    return NDP_OK;
}

/* For the micro-batch that begins with run r: the last run that writes each buffer's gradient. */
static void find_last_writes(builder *b, int first) {
    for (int r = first; r < b->n_runs && b->runs[r].micro_batch == b->runs[first].micro_batch; r++) {
        const ndp_list *list = list_of(b, &b->runs[r]);
        for (int k = 0; k < list->n_pgrads; k++)
            b->last_write[b->m->units[b->runs[r].unit].buffers[list->pgrads[k].slot]] = r;
    }
}

/* Blocks and accumulate bits of the parameter gradients that a run writes. */
static ndp_status bind_gradients(builder *b, const run *r, ndp_instr *in) {
    const ndp_list *list = list_of(b, r);
    for (int k = 0; k < list->n_pgrads; k++) {
        int slot = list->pgrads[k].slot, buffer = b->m->units[r->unit].buffers[slot];
        const ndp_owned *o = &b->p->owned[buffer];
        if (o->shard.shards == 1)
            b->grad[buffer] = o->grad.block;
        else if (b->grad[buffer] == NDP_NONE)
            NDP_TRY(add_block(b->p, NDP_MEM_GRADIENTS, NDP_REGION_ARENA, false,
                              (size_t)(o->shard.slice * o->shard.shards) * ndp_dtype_size(b->m->opts.master),
                              &b->grad[buffer]));
        in->bases[NDP_BASE_PGRAD + slot] = b->grad[buffer];
        uint64_t bit = (uint64_t)1 << list->pgrads[k].segment;
        if (b->written[buffer] & bit)
            in->accumulate |= 1u << k;
        b->written[buffer] |= bit;
    }
    return NDP_OK;
}

/* ---- a run's memory ---- */

static ndp_status want(builder *b, int *block, ndp_memory_class class, size_t bytes) {
    return *block != NDP_NONE || bytes == 0 ? NDP_OK : add_block(b->p, class, NDP_REGION_ARENA, false, bytes, block);
}

static ndp_status bind_activations(builder *b, const run *r, ndp_instr *in) {
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

static ndp_status emit_run(builder *b, int index) {
    const run *r = &b->runs[index];
    const ndp_unit *unit = &b->m->units[r->unit];
    ndp_instr in = {.code = NDP_DO_RUN,
                    .unit = r->unit,
                    .micro_batch = r->micro_batch,
                    .phase = r->phase,
                    .partner = NDP_NONE,
                    .what = unit->name};
    for (int i = 0; i < NDP_BASE_DATA; i++)
        in.bases[i] = NDP_NONE;
    for (int s = 0; s < NDP_SLOTS; s++)
        if (unit->buffers[s] != NDP_NONE && list_of(b, r)->reads[s])
            in.bases[NDP_BASE_PARAM + s] = b->gathered[unit->buffers[s]];
    NDP_TRY(bind_gradients(b, r, &in));
    NDP_TRY(bind_activations(b, r, &in));
    return emit(b->p, in);
}

/* ---- the whole ---- */

static ndp_status all_reduce_scalar(builder *b, ndp_group_kind group, size_t field, ndp_dtype type, const char *what) {
    ndp_place at = {b->p->scalars.block, field};
    if (ndp_mesh_group(&b->p->opts.mesh, group).count == 1)
        return NDP_OK;
    return emit_comm(b->p, (ndp_instr){.kind = NDP_ALL_REDUCE,
                                       .group = group,
                                       .in = at,
                                       .out = at,
                                       .count = 1,
                                       .type = type,
                                       .what = what,
                                       .buffer = NDP_NONE});
}

static ndp_status emit_runs(builder *b) {
    for (int r = 0; r < b->n_runs; r++) {
        bool any;
        if (r == 0 || b->runs[r].micro_batch != b->runs[r - 1].micro_batch)
            find_last_writes(b, r);
        NDP_TRY(gather_for(b, r, true, &any));
        NDP_TRY(prefetch(b, r));
        NDP_TRY(emit_run(b, r));
        NDP_TRY(reduce_finished(b, r));
        release_gathered(b, r);
    }
    return finish_reductions(b);
}

/* Sums this rank's part of the gradients of what several ranks of the tensor axis hold. A few at a time are under way.
 */
static ndp_status sum_replicas(builder *b) {
    enum { MOST = 4 };
    int begun[MOST], n = 0;
    for (int i = 0; i < b->m->n_buffers; i++) {
        const ndp_owned *o = &b->p->owned[i];
        ndp_piece piece;
        for (int c = 0; ndp_segments_piece(&b->m->buffers[i].segments, o->shard.shards, o->shard.index, &c, &piece);) {
            if (piece.segment->sum == NDP_GRADIENT_WHOLE)
                continue;
            if (n >= MOST)
                NDP_TRY(emit_wait(b->p, begun[n % MOST]));
            ndp_place at = {o->grad.block,
                            o->grad.offset + (size_t)piece.slice_first * ndp_dtype_size(b->m->opts.master)};
            NDP_TRY(emit_begin(
                b->p,
                (ndp_instr){.kind = NDP_ALL_REDUCE,
                            .group = piece.segment->sum == NDP_GRADIENT_OVER_TP ? NDP_GROUP_TP : NDP_GROUP_KV,
                            .in = at,
                            .out = at,
                            .count = piece.count,
                            .type = b->m->opts.master,
                            .what = piece.segment->name,
                            .buffer = i},
                &begun[n++ % MOST]));
        }
    }
    for (int k = n > MOST ? n - MOST : 0; k < n; k++)
        NDP_TRY(emit_wait(b->p, begun[k % MOST]));
    return NDP_OK;
}

static ndp_status emit_update(builder *b) {
    NDP_TRY(sum_replicas(b));
    NDP_TRY(emit_code(b->p, NDP_DO_NORM));
    NDP_TRY(all_reduce_scalar(b, NDP_GROUP_SHARD, offsetof(ndp_scalars, squares), NDP_F64, "grad_norm"));
    NDP_TRY(all_reduce_scalar(b, NDP_GROUP_TP, offsetof(ndp_scalars, squares), NDP_F64, "grad_norm"));
    NDP_TRY(emit_code(b->p, NDP_DO_CLIP));
    for (int i = 0; i < b->m->n_buffers; i++)
        NDP_TRY(emit(
            b->p, (ndp_instr){.code = NDP_DO_UPDATE, .buffer = i, .partner = NDP_NONE, .what = b->m->buffers[i].name}));
    return NDP_OK;
}

static ndp_status emit_all(builder *b) {
    bool train = b->m->opts.mode == NDP_MODEL_TRAIN;
    list_runs(b);
    NDP_TRY(emit_code(b->p, NDP_DO_COUNT));
    NDP_TRY(all_reduce_scalar(b, NDP_GROUP_LOSS, offsetof(ndp_scalars, valid), NDP_I64, "valid_tokens"));
    NDP_TRY(emit_code(b->p, NDP_DO_SCALE));
    NDP_TRY(emit_runs(b));
    NDP_TRY(all_reduce_scalar(b, NDP_GROUP_LOSS, offsetof(ndp_scalars, loss), NDP_F64, "loss"));
    return train ? emit_update(b) : NDP_OK;
}

static ndp_status builder_init(builder *b, ndp_program *p) {
    const ndp_model *m = p->opts.model;
    size_t units = (size_t)m->n_units + 1, buffers = (size_t)m->n_buffers;
    *b = (builder){.p = p, .m = m, .pending_scatter = NDP_NONE, .pending_replicas = NDP_NONE};
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
    builder b = {0};
    ndp_status st = own_all(&p);
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
    free(p->blocks);
    free(p->owned);
    *p = (ndp_program){0};
}
