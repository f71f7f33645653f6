/* What a rank keeps from step to step: persistent blocks of the program, allocated before any instruction.
 *
 * For a buffer (parallel/shard.h has the cases): the master slice; `send`, the slice in the type that is kept, which
 * gathers send; `weights`, the whole buffer, if it stays in memory. These coincide where they can: `send` is the master
 * if the types are the same, and lies in `weights` if that is kept. Of fp32 weights with bf16 to gather, `send` is the
 * upper part, and the master's block has only the rest. Trainable buffers add a gradient slice and
 * optimizer state. */
#include "model/tensors.h"
#include "step/program_parts.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Makes a block of this program that stands for one of the lender. */
static ndp_status borrow(ndp_program *p, ndp_address from, ndp_address *out) {
    if (from.block == NDP_NONE)
        return NDP_OK;
    const ndp_block *b = &p->opts.weights_of->blocks[from.block];
    ndp_region region = (ndp_region)(b->region + NDP_REGION_LENT_ARENA - NDP_REGION_ARENA);
    NDP_TRY(ndp_block_keep(p, b->class, region, b->bytes, out));
    p->blocks[out->block].offset = b->offset;
    out->offset = from.offset;
    return NDP_OK;
}

static ndp_status borrow_buffer(ndp_program *p, int i) {
    const ndp_owned *from = &p->opts.weights_of->owned[i];
    ndp_owned *o = &p->owned[i];
    o->shard = from->shard;
    NDP_TRY(borrow(p, from->weights, &o->weights));
    NDP_TRY(borrow(p, from->send, &o->send));
    return borrow(p, from->master, &o->master);
}

static ndp_status own_row(ndp_program *p, int64_t n, ndp_dtype type, ndp_address *out) {
    return n > 0 ? ndp_block_keep(p, NDP_MEM_OPTIMIZER, NDP_REGION_ARENA, (size_t)n * ndp_dtype_size(type), out)
                 : NDP_OK;
}

/* A short state may be empty. Codes have room for the slice. */
static ndp_status own_state(ndp_program *p, int i) {
    const ndp_buffer *b = &p->opts.model->buffers[i];
    ndp_owned *o = &p->owned[i];
    ndp_piece_counts n = ndp_pieces_count(&p->groups, &b->segments, o->shard.shards, o->shard.index);
    o->n_scales = n.blocks;
    for (int k = 0; k < ndp_update_states(&p->groups); k++) {
        o->state_n[k] = ndp_update_state_is_short(&p->groups, k) ? n.kept[k] : o->shard.slice;
        NDP_TRY(own_row(p, o->state_n[k], b->storage.state, &o->state[k]));
        NDP_TRY(own_row(p, n.blocks > 0 ? o->shard.slice : 0, NDP_U8, &o->codes[k]));
        NDP_TRY(own_row(p, n.blocks, ndp_wide(b->storage.state), &o->scales[k]));
    }
    return NDP_OK;
}

static ndp_status own_buffer(ndp_program *p, int i) {
    const ndp_model *m = p->opts.model;
    ndp_owned *o = &p->owned[i];
    const ndp_address nowhere = {NDP_NONE, 0};
    *o = (ndp_owned){.weights = nowhere,
                     .send = nowhere,
                     .master = nowhere,
                     .grad = nowhere,
                     .state = {nowhere, nowhere},
                     .codes = {nowhere, nowhere},
                     .scales = {nowhere, nowhere}};
    if (p->opts.weights_of)
        return borrow_buffer(p, i);
    o->shard = ndp_shard_buffer(m, i, &p->opts.step.mesh, p->opts.step.node_ranks, p->opts.step.reshard);
    const ndp_shard *s = &o->shard;
    const ndp_region home = NDP_REGION_ARENA, shared = (ndp_region)(NDP_REGION_SHARED + (int)m->buffers[i].owners);
    const ndp_storage *types = &m->buffers[i].storage;
    size_t kept = ndp_dtype_size(types->kept), master = ndp_dtype_size(types->master), n = (size_t)s->slice;
    if (s->in_place)
        NDP_TRY(ndp_block_keep(p, NDP_MEM_WEIGHTS, shared, n * (size_t)s->shards * kept, &o->weights));
    else if (s->shards == 1 && !s->same)
        NDP_TRY(ndp_block_keep(p, NDP_MEM_WEIGHTS, home, n * kept, &o->weights));
    if (s->in_place && s->same)
        o->master = (ndp_address){o->weights.block, (size_t)s->index * n * master};
    else
        NDP_TRY(
            ndp_block_keep(p, m->buffers[i].trainable ? NDP_MEM_MASTER : NDP_MEM_FROZEN, home, n * master, &o->master));
    if (s->shards == 1 && s->same)
        o->weights = o->master;
    if (s->same)
        o->send = o->master;
    else if (s->in_place || s->shards == 1)
        o->send = (ndp_address){o->weights.block, s->in_place ? (size_t)s->index * n * kept : 0};
    else
        NDP_TRY(ndp_block_keep(p, NDP_MEM_WEIGHTS, home, n * kept, &o->send));
    if (m->opts.mode != NDP_MODEL_TRAIN || !m->buffers[i].trainable)
        return NDP_OK;
    NDP_TRY(ndp_block_keep(p, NDP_MEM_GRADIENTS, home, n * ndp_dtype_size(types->gradient), &o->grad));
    return own_state(p, i);
}

/* The inputs of a micro-batch are contiguous, so one copy uploads them; so are the tables. */
static ndp_status own_inputs(ndp_program *p) {
    const ndp_inputs *inputs = p->opts.model->inputs;
    size_t batch = 0, tables = 0;
    bool aligned = false; /* a micro-batch has fp64 numbers */
    for (int i = 0; i < inputs->n; i++) {
        ndp_input_kind kind = inputs->items[i].kind;
        size_t *end = ndp_input_is_of_batch(kind) ? &batch : &tables;
        bool wide = ndp_input_is_of_batch(kind) && inputs->items[i].type == NDP_F64;
        aligned |= wide;
        *end = wide ? (*end + 7) / 8 * 8 : *end;
        p->input_at[i] = *end;
        if (ndp_input_is_of_batch(kind) || ndp_input_is_table(kind))
            *end += ndp_input_bytes(inputs, i);
    }
    p->batch_stride = batch = aligned ? (batch + 7) / 8 * 8 : batch;
    NDP_TRY(ndp_block_keep(p, NDP_MEM_DATA, NDP_REGION_ARENA, batch * (size_t)p->opts.step.accumulation, &p->batch));
    return ndp_block_keep(p, NDP_MEM_DATA, NDP_REGION_ARENA, tables, &p->tables);
}

ndp_address ndp_program_input(const ndp_program *p, int input, int micro_batch) {
    ndp_input_kind kind = p->opts.model->inputs->items[input].kind;
    size_t at = p->input_at[input];
    if (ndp_input_is_of_batch(kind))
        return (ndp_address){p->batch.block, (size_t)micro_batch * p->batch_stride + at};
    switch (kind) {
    case NDP_INPUT_TABLE:
    case NDP_INPUT_UNIT_TABLE:
        return (ndp_address){p->tables.block, at};
    case NDP_INPUT_LOSS_SCALE:
        return (ndp_address){p->scalars.block, offsetof(ndp_scalars, scale)};
    case NDP_INPUT_NLL_SCALE:
        return (ndp_address){p->scalars.block, offsetof(ndp_all_scalars, pair.nll_scale)};
    case NDP_INPUT_ROUTER_SCALE:
        return (ndp_address){p->scalars.block, offsetof(ndp_all_scalars, router.scale)};
    case NDP_INPUT_ROUTER_SUMS:
        return (ndp_address){p->scalars.block, offsetof(ndp_all_scalars, router.sums)};
    case NDP_INPUT_LOADS:
        return p->loads;
    case NDP_INPUT_LOSS:
        return (ndp_address){p->scalars.block, ndp_loss_at(p)};
    default:
        return (ndp_address){NDP_NONE, 0};
    }
}

size_t ndp_table_bytes(const ndp_program *p, int buffer) {
    return (size_t)(p->owned[buffer].n_pieces * ndp_piece_columns(&p->groups)) * sizeof(int64_t);
}

/* One block has the scalars, the loads, the constants of the update, and the tables of pieces. */
static ndp_status own_numbers(ndp_program *p) {
    const ndp_model *m = p->opts.model;
    bool train = m->opts.mode == NDP_MODEL_TRAIN;
    size_t loads = ndp_scalars_bytes(p), constants = loads + (size_t)ndp_program_loads(p) * sizeof(double),
           bytes = constants;
    bytes += train ? ndp_constants_bytes(p) : 0;
    for (int i = 0; train && i < m->n_buffers; i++) {
        ndp_owned *o = &p->owned[i];
        if (!m->buffers[i].trainable)
            continue;
        ndp_piece_counts n = ndp_pieces_count(&p->groups, &m->buffers[i].segments, o->shard.shards, o->shard.index);
        o->n_pieces = n.all;
        memcpy(o->n_of, n.of, sizeof o->n_of);
        o->pieces.offset = bytes;
        bytes += ndp_table_bytes(p, i);
    }
    NDP_TRY(ndp_block_keep(p, NDP_MEM_DATA, NDP_REGION_ARENA, bytes, &p->scalars));
    p->loads = (ndp_address){p->scalars.block, loads};
    p->constants = (ndp_address){p->scalars.block, constants};
    for (int i = 0; i < m->n_buffers; i++)
        p->owned[i].pieces.block = p->owned[i].n_pieces > 0 ? p->scalars.block : NDP_NONE;
    return NDP_OK;
}

/* The norm is that of one replica's slices (step_update.c). */
static ndp_status check_owners(const ndp_program *p, const ndp_buffer *b) {
    ndp_mesh replica = ndp_mesh_of_replica(&p->opts.step.mesh);
    int all = ndp_mesh_group(&p->opts.step.mesh, b->owners).count, inside = ndp_mesh_group(&replica, b->owners).count;
    return all == inside ? NDP_OK
                         : NDP_FAIL(NDP_EBUG, "the %d owners of %s, group %s, are in several replicas of the model",
                                    all, b->name, ndp_group_name(b->owners));
}

/* Of all ranks: each fails, or none. */
static ndp_status make_groups(ndp_program *p) {
    const ndp_model *whole = p->opts.whole;
    bool train = whole->opts.mode == NDP_MODEL_TRAIN;
    for (ndp_segment_walk w = {.model = whole}; train && ndp_segment_next(&w);)
        if (whole->buffers[w.buffer].trainable)
            NDP_TRY(ndp_update_groups_check(&p->opts.step.optimizer, w.segment));
    NDP_TRY(ndp_update_groups_make(&p->opts.step.optimizer, &p->arena, &p->groups));
    p->groups.rounds = ndp_model_rounds(&whole->opts);
    return NDP_OK;
}

ndp_status ndp_own_all(ndp_program *p) {
    const ndp_model *m = p->opts.model;
    NDP_TRY(make_groups(p));
    p->owned = calloc((size_t)m->n_buffers, sizeof *p->owned);
    NDP_CHECK_MEMORY(p->owned, "for the program of %d units", m->n_units);
    for (int i = 0; i < m->n_buffers; i++) {
        NDP_TRY(check_owners(p, &m->buffers[i]));
        NDP_TRY(own_buffer(p, i));
    }
    NDP_TRY(own_inputs(p));
    return own_numbers(p);
}
