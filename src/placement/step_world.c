/* The world of lanes, before the first instruction and after the last one: a step is a loop, so what it needs of the
 * step before it must leave for the next one. */
#include "placement/step_world.h"

/* ---- before the first instruction ---- */

static bool trains(const ndp_program *p) { return p->opts.model->opts.mode == NDP_MODEL_TRAIN; }

static ndp_status put(ndp_step_lane *l, ndp_address at, size_t bytes, ndp_held s) {
    s.made = NDP_NONE;
    return at.block == NDP_NONE ? NDP_OK
                                : ndp_memory_write(&l->memory, (ndp_bytes){at.block, at.offset, at.offset + bytes}, s);
}

static ndp_status put_flat(ndp_step_lane *l, ndp_address at, ndp_held_kind kind, ndp_dtype type, int whole,
                           int64_t first, int64_t count) {
    return put(l, at, (size_t)count * ndp_dtype_size(type),
               (ndp_held){.kind = kind, .type = type, .of = whole, .first = first});
}

/* Where a lane keeps the weights of its slice, and as what type. Slices of other ranks in a shared window are not there
 * before the first gather: those ranks may still write them. */
typedef struct kept {
    ndp_address at;
    ndp_dtype type;
} kept;
enum { KEPT = 3 };

static void find_kept(const ndp_step_lane *l, int i, kept out[KEPT]) {
    const ndp_owned *o = &l->program->owned[i];
    const ndp_storage *types = &l->program->opts.model->buffers[i].storage;
    out[0] = (kept){o->weights, types->kept}, out[1] = (kept){o->send, types->kept};
    out[2] = (kept){o->master, types->master};
    if (o->shard.shards > 1)
        out[0].at.block = NDP_NONE;
    if (l->program->opts.weights_of && !o->shard.same) /* lent */
        out[2].at.block = NDP_NONE;
}

static ndp_status put_buffer(ndp_step_lane *l, int i) {
    const ndp_owned *o = &l->program->owned[i];
    ndp_dtype type = l->program->opts.model->buffers[i].storage.state;
    int whole = l->shared->buffers[i].whole;
    int64_t n = o->shard.slice;
    kept weights[KEPT];
    find_kept(l, i, weights);
    for (int k = 0; k < KEPT; k++)
        NDP_TRY(put_flat(l, weights[k].at, NDP_HELD_PARAM, weights[k].type, whole, o->shard.index * n, n));
    for (int k = 0; k < NDP_OPTIMIZER_STATES; k++) {
        NDP_TRY(put_flat(l, o->state[k], ndp_held_of_state(NDP_HELD_STATE0, k), type, whole, 0, o->state_n[k]));
        NDP_TRY(put_flat(l, o->codes[k], ndp_held_of_state(NDP_HELD_CODES0, k), NDP_U8, whole, 0, n));
        NDP_TRY(
            put_flat(l, o->scales[k], ndp_held_of_state(NDP_HELD_SCALES0, k), ndp_wide(type), whole, 0, o->n_scales));
    }
    return NDP_OK;
}

static ndp_status put_numbers(ndp_step_lane *l) {
    const ndp_program *p = l->program;
    const ndp_block *blocks = p->blocks;
    for (int i = 0; i < p->opts.model->n_buffers; i++)
        if (p->owned[i].n_pieces > 0)
            NDP_TRY(put(l, p->owned[i].pieces, (size_t)(p->owned[i].n_pieces * l->shared->columns) * sizeof(int64_t),
                        (ndp_held){.kind = NDP_HELD_PIECES, .of = l->shared->buffers[i].whole, .at = i}));
    if (p->constants.block != NDP_NONE && trains(p))
        NDP_TRY(put(l, p->constants, ndp_constants_bytes(p), (ndp_held){.kind = NDP_HELD_CONSTANTS, .of = NDP_NONE}));
    if (p->batch.block != NDP_NONE)
        NDP_TRY(put(l, p->batch, blocks[p->batch.block].bytes, (ndp_held){.kind = NDP_HELD_INPUTS, .of = 0}));
    return p->tables.block == NDP_NONE
               ? NDP_OK
               : put(l, p->tables, blocks[p->tables.block].bytes, (ndp_held){.kind = NDP_HELD_INPUTS, .of = 1});
}

/* ---- after the last one ---- */

/* The weights that the next step reads. */
static ndp_status end_buffer(const ndp_step_lane *l, int i) {
    const ndp_step_buffer *b = &l->shared->buffers[i];
    int64_t low = b->shard.index * b->shard.slice;
    kept weights[KEPT];
    ndp_stretch t;
    find_kept(l, i, weights);
    for (int k = 0; ndp_step_next_stretch(b, &k, low, low + b->shard.slice, &t);)
        for (int n = 0; n < KEPT; n++) {
            size_t at = weights[n].at.offset + (size_t)(t.first - low) * ndp_dtype_size(weights[n].type);
            if (weights[n].at.block != NDP_NONE)
                NDP_TRY(ndp_step_needs(l, weights[n].at.block, at, NDP_HELD_PARAM, b, t.first, t.end - t.first,
                                       weights[n].type, b->trainable || b->moves));
        }
    return NDP_OK;
}

/* Elements of a state, from place `at` on: all were updated. */
static ndp_status end_state(const ndp_step_lane *l, const ndp_step_buffer *b, ndp_address state, ndp_held_kind kind,
                            ndp_dtype type, int64_t at, int64_t count) {
    return state.block == NDP_NONE ? NDP_OK
                                   : ndp_step_needs(l, state.block, state.offset + (size_t)at * ndp_dtype_size(type),
                                                    kind, b, at, count, type, 1);
}

/* States have an element, or a code and a share in a scale, for each that is updated with them. */
static ndp_status end_states(const ndp_step_lane *l, int i) {
    const ndp_owned *o = &l->program->owned[i];
    const ndp_step_buffer *b = &l->shared->buffers[i];
    ndp_dtype type = l->program->opts.model->buffers[i].storage.state;
    for (int64_t r = 0; r < b->n_pieces; r++) {
        const int64_t *row = b->pieces + r * l->shared->columns;
        int64_t first = row[NDP_PIECE_FIRST], count = row[NDP_PIECE_COUNT];
        const ndp_optimizer_opts *by = &l->program->groups.items[ndp_piece_group(row)].opts;
        for (int k = 0; k < ndp_optimizer_states(by); k++) {
            if (ndp_optimizer_codes(by->name)) {
                NDP_TRY(end_state(l, b, o->codes[k], ndp_held_of_state(NDP_HELD_CODES0, k), NDP_U8, first, count));
                NDP_TRY(end_state(l, b, o->scales[k], ndp_held_of_state(NDP_HELD_SCALES0, k), ndp_wide(type),
                                  row[NDP_PIECE_PLACE], ndp_step_blocks(row)));
            } else {
                int64_t at = ndp_step_state_is_short(l, b, o->state_n[k]) ? row[NDP_PIECE_PLACE] : first;
                NDP_TRY(end_state(l, b, o->state[k], ndp_held_of_state(NDP_HELD_STATE0, k), type, at, count));
            }
        }
    }
    return NDP_OK;
}

ndp_status ndp_step_end(const ndp_step_lane *l) {
    const ndp_program *p = l->program;
    for (int i = 0; i < p->opts.model->n_buffers; i++) {
        NDP_TRY(end_buffer(l, i));
        if (l->shared->buffers[i].trainable)
            NDP_TRY(end_states(l, i));
    }
    if (ndp_inputs_find(p->opts.model->inputs, NDP_INPUT_LABELS) >= 0) {
        NDP_TRY(ndp_step_scalar_needs(l, NDP_STEP_VALID));
        NDP_TRY(ndp_step_scalar_needs(l, NDP_STEP_LOSS));
        NDP_TRY(ndp_step_scalar_needs(l, NDP_STEP_SCALE));
    }
    if (ndp_program_has_router_losses(p))
        NDP_TRY(ndp_step_scalar_needs(l, NDP_STEP_ROUTERS));
    if (ndp_program_loads(p) > 0)
        NDP_TRY(ndp_step_scalar_needs(l, NDP_STEP_LOADS));
    if (trains(p))
        NDP_TRY(ndp_step_scalar_needs(l, NDP_STEP_NORM));
    return l->n_under_way == 0 ? NDP_OK : ndp_step_refuse(l, "%d communications are not waited for", l->n_under_way);
}

/* ---- lanes ---- */

static ndp_status find_shared(ndp_step_world *w, const ndp_program *p, const ndp_step_program **out) {
    int i = 0;
    while (i < w->n_programs && w->programs[i].program != p)
        i++;
    *out = &w->programs[i];
    return i < w->n_programs ? NDP_OK : ndp_step_program_init(w->lanes, p, &w->arena, &w->programs[w->n_programs++]);
}

static ndp_status take_lane(ndp_step_world *w, int lane) {
    ndp_step_lane *l = &w->items[lane];
    const ndp_program *p = w->lanes->items[lane].program;
    *l = (ndp_step_lane){.world = w, .lane = lane, .program = p, .walk = NDP_WALK_START, .part.bytes.block = NDP_NONE};
    ndp_held_list *most =
        &l->memory.of[NDP_REGION_ARENA]; /* weights, gradient and two states of each buffer, and more */
    l->memory.blocks = p->blocks, l->memory.arena = &w->arena;
    most->capacity = 6 * p->opts.model->n_buffers;
    NDP_TRY(NDP_NEW(&w->arena, most->capacity, most->items));
    NDP_TRY(find_shared(w, p, &l->shared));
    NDP_TRY(NDP_NEW(&w->arena, p->n_works, l->under_way));
    NDP_TRY(NDP_NEW(&w->arena, p->opts.model->n_buffers, l->uses));
    for (int i = 0; i < p->opts.model->n_buffers; i++)
        l->uses[i].read = NDP_NONE;
    for (int i = 0; i < NDP_CHANNELS; i++)
        l->waited[i] = NDP_NONE;
    for (int i = 0; i < p->opts.model->n_buffers; i++)
        NDP_TRY(put_buffer(l, i));
    return put_numbers(l);
}

/* Which micro-batches count. */
static void count_micro_batches(ndp_step_world *w) {
    const ndp_program *p = w->lanes->items[0].program;
    int64_t left_out = p->repeats.n > 0 ? p->repeats.items[0].times - w->visits.first : 0;
    left_out = left_out < 0 ? 0 : left_out < w->visits.without ? left_out : w->visits.without;
    w->without = p->repeats.n > 0 ? (int)left_out * p->repeats.items[0].micro_batches : 0;
    w->micro_batches = p->opts.step.accumulation - w->without;
}

int ndp_step_trained(const ndp_model *whole, int buffer) {
    int n = 0;
    for (int b = 0; b < buffer; b++)
        n += whole->buffers[b].trainable ? whole->buffers[b].segments.n : 0;
    return n;
}

ndp_status ndp_step_world_init(const ndp_lanes *l, const ndp_units *u, ndp_visits visits, ndp_step_world *out) {
    const ndp_model *whole = l->items[0].program->opts.whole;
    *out = (ndp_step_world){.lanes = l, .units = u, .visits = visits, .whole = whole};
    out->data = (ndp_own)((ndp_lanes_blocks(l, 0) > 1 ? NDP_OWN_REPLICATE : 0) |
                          (ndp_lanes_blocks(l, 1) > 1 ? NDP_OWN_SHARD : 0));
    NDP_TRY(NDP_NEW(&out->arena, l->n, out->items));
    NDP_TRY(NDP_NEW(&out->arena, l->n, out->programs));
    NDP_TRY(NDP_NEW(&out->arena, l->n, out->meeting));
    count_micro_batches(out);
    NDP_TRY(ndp_meetings_init(l, NDP_CHANNELS, &out->arena, &out->meetings));
    for (int i = 0; i < l->n; i++)
        NDP_TRY(take_lane(out, i));
    return NDP_OK;
}
