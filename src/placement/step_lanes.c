/* Before the first instruction and after the last one: a step is a loop, so what it needs of the step before it must
 * leave for the next one. */
#include "placement/step_lanes.h"

#include "ops/pieces.h"
#include <stdlib.h>
#include <string.h>

/* ---- what programs have ---- */

static int by_first(const void *a, const void *b) {
    const ndp_stretch *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

static ndp_status take_stretches(const ndp_segments *s, ndp_step_buffer *out) {
    out->stretches = calloc((size_t)s->n + 1, sizeof *out->stretches);
    if (!out->stretches)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for a table of %d tensors", s->n);
    for (int k = 0; k < s->n; k++) {
        const ndp_segment *seg = &s->items[k];
        if (seg->length > 0)
            out->stretches[out->n++] = (ndp_stretch){seg->offset, seg->offset + seg->length, k, seg->projection};
    }
    qsort(out->stretches, (size_t)out->n, sizeof *out->stretches, by_first);
    return NDP_OK;
}

static ndp_status take_pieces(const ndp_lanes *l, const ndp_program *p, int buffer, int columns, ndp_step_buffer *out) {
    const ndp_segments *table = &p->opts.model->buffers[buffer].segments;
    const ndp_shard *s = &out->shard;
    out->n_pieces = l->claims->pieces(l->claims->user, p, table, buffer, s->shards, s->index, NULL);
    out->pieces = calloc((size_t)(out->n_pieces * columns) + 1, sizeof *out->pieces);
    if (!out->pieces)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for a table of %lld pieces", (long long)out->n_pieces);
    l->claims->pieces(l->claims->user, p, table, buffer, s->shards, s->index, out->pieces);
    return NDP_OK;
}

static int find_buffer(const ndp_model *whole, const char *name) {
    for (int i = 0; i < whole->n_buffers; i++)
        if (strcmp(whole->buffers[i].name, name) == 0)
            return i;
    return NDP_NONE;
}

static bool trains(const ndp_program *p) { return p->opts.model->opts.mode == NDP_MODEL_TRAIN; }

/* A buffer's place among its owners is the slice it says. */
static ndp_status take_buffer(const ndp_lanes *l, ndp_step_program *s, int i) {
    const ndp_program *p = s->program;
    const ndp_buffer *b = &p->opts.model->buffers[i];
    ndp_group owners = ndp_mesh_group(&p->opts.step.mesh, b->owners);
    ndp_step_buffer *out = &s->buffers[i];
    *out = (ndp_step_buffer){.name = b->name,
                             .whole = find_buffer(p->opts.whole, b->name),
                             .shard = p->owned[i].shard,
                             .trainable = trains(p) && b->trainable};
    NDP_TRY(take_stretches(&b->segments, out));
    int64_t end = out->n > 0 ? out->stretches[out->n - 1].end : 0;
    const ndp_shard *shard = &out->shard;
    if (out->whole == NDP_NONE || shard->shards != owners.count || shard->index != owners.rank ||
        shard->slice * shard->shards < end)
        return NDP_FAIL(NDP_EBUG,
                        "placement: rank %d: slice %d of %d, of %lld elements each, of %s: it is rank %d of %d in "
                        "group %s, and the buffer ends at element %lld",
                        p->opts.step.mesh.rank, shard->index, shard->shards, (long long)shard->slice, b->name,
                        owners.rank, owners.count, ndp_group_name(b->owners), (long long)end);
    s->local[out->whole] = i;
    return out->trainable ? take_pieces(l, p, i, s->columns, out) : NDP_OK;
}

static void find_written(ndp_step_program *s, int graph, int phase) {
    const ndp_list *list = &s->program->opts.units[graph].lists[phase];
    for (int i = 0; i < list->n; i++)
        for (int k = 0; k < list->calls[i].n_out; k++)
            if (list->calls[i].out[k].base != NDP_NONE)
                s->written[graph][phase] |= (uint64_t)1 << list->calls[i].out[k].base;
}

static ndp_status take_program(const ndp_lanes *l, const ndp_program *p, ndp_step_program *out) {
    const ndp_model *m = p->opts.model;
    *out = (ndp_step_program){.program = p,
                              .buffers = calloc((size_t)m->n_buffers + 1, sizeof *out->buffers),
                              .local = malloc(((size_t)p->opts.whole->n_buffers + 1) * sizeof *out->local),
                              .apart = trains(p) ? ndp_optimizer_apart(&p->opts.step.optimizer) : NDP_APART_NONE};
    out->columns = ndp_piece_columns(out->apart);
    if (!out->buffers || !out->local)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory to check %d buffers", m->n_buffers);
    for (int i = 0; i < p->opts.whole->n_buffers; i++)
        out->local[i] = NDP_NONE;
    for (int i = 0; i < m->n_buffers; i++)
        NDP_TRY(take_buffer(l, out, i));
    for (int i = 0; i < m->n_graphs * NDP_PHASES; i++)
        find_written(out, i / NDP_PHASES, i % NDP_PHASES);
    NDP_TRY(ndp_step_pinned_init(out));
    NDP_TRY(ndp_step_rings_check(p));
    return ndp_step_places_init(p, &out->places);
}

/* ---- before the first instruction ---- */

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

/* Slices of other ranks in a shared window are not there before the first gather: those ranks may still write them. */
static ndp_status put_buffer(ndp_step_lane *l, int i) {
    const ndp_owned *o = &l->program->owned[i];
    const ndp_storage *types = &l->program->opts.model->buffers[i].storage;
    const ndp_shard *s = &o->shard;
    int whole = l->shared->buffers[i].whole;
    int64_t first = s->index * s->slice;
    if (s->shards == 1)
        NDP_TRY(put_flat(l, o->weights, NDP_HELD_PARAM, types->kept, whole, 0, s->slice));
    NDP_TRY(put_flat(l, o->send, NDP_HELD_PARAM, types->kept, whole, first, s->slice));
    if (!l->program->opts.weights_of || s->same)
        NDP_TRY(put_flat(l, o->master, NDP_HELD_PARAM, types->master, whole, first, s->slice));
    for (int k = 0; k < NDP_OPTIMIZER_STATES; k++) {
        NDP_TRY(put_flat(l, o->state[k], ndp_held_state(k), types->state, whole, 0, o->state_n[k]));
        NDP_TRY(put_flat(l, o->codes[k], ndp_held_codes(k), NDP_U8, whole, 0, s->slice));
        NDP_TRY(put_flat(l, o->scales[k], ndp_held_scales(k), types->state, whole, 0, o->n_scales));
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
        NDP_TRY(put(l, p->constants, NDP_OPTIMIZER_CONSTANTS * sizeof(double),
                    (ndp_held){.kind = NDP_HELD_CONSTANTS, .of = NDP_NONE}));
    if (p->batch.block != NDP_NONE)
        NDP_TRY(put(l, p->batch, blocks[p->batch.block].bytes, (ndp_held){.kind = NDP_HELD_INPUTS, .of = 0}));
    return p->tables.block == NDP_NONE
               ? NDP_OK
               : put(l, p->tables, blocks[p->tables.block].bytes, (ndp_held){.kind = NDP_HELD_INPUTS, .of = 1});
}

/* ---- after the last one ---- */

/* The weights that the next step reads. */
static ndp_status end_buffer(const ndp_step_lane *l, int i) {
    const ndp_owned *o = &l->program->owned[i];
    const ndp_step_buffer *b = &l->shared->buffers[i];
    const ndp_storage *types = &l->program->opts.model->buffers[i].storage;
    const ndp_shard *s = &o->shard;
    int64_t first = s->index * s->slice, end = first + s->slice;
    for (int k = 0; k < b->n; k++) {
        int64_t low = b->stretches[k].first > first ? b->stretches[k].first : first;
        int64_t high = b->stretches[k].end < end ? b->stretches[k].end : end;
        if (low >= high)
            continue;
        const struct {
            ndp_address at;
            ndp_dtype type;
            ndp_held_kind kind;
        } kept[] = {{o->master, types->master, NDP_HELD_PARAM},
                    {o->send, types->kept, NDP_HELD_PARAM},
                    {s->shards == 1 ? o->weights : o->send, types->kept, NDP_HELD_PARAM}};
        for (int n = 0; n < NDP_COUNT(kept); n++) {
            bool lent = l->program->opts.weights_of && n == 0 && !s->same;
            if (kept[n].at.block != NDP_NONE && !lent)
                NDP_TRY(ndp_step_needs(l, kept[n].at.block,
                                       kept[n].at.offset + (size_t)(low - first) * ndp_dtype_size(kept[n].type),
                                       kept[n].kind, b, low, high - low, kept[n].type, b->trainable));
        }
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
        bool apart = r >= b->n_pieces - o->n_apart, coded = apart && l->shared->apart == NDP_APART_CODED;
        for (int k = 0; k < NDP_OPTIMIZER_STATES; k++) {
            if (coded) {
                NDP_TRY(end_state(l, b, o->codes[k], ndp_held_codes(k), NDP_U8, first, count));
                NDP_TRY(end_state(l, b, o->scales[k], ndp_held_scales(k), type, row[NDP_PIECE_PLACE],
                                  ndp_step_blocks(row)));
            } else if (!apart || k == 0) {
                int64_t at = ndp_step_state_is_short(l, b, o->state_n[k]) ? row[NDP_PIECE_PLACE] : first;
                NDP_TRY(end_state(l, b, o->state[k], ndp_held_state(k), type, at, count));
            }
        }
    }
    return NDP_OK;
}

static bool has_labels(const ndp_inputs *inputs) {
    bool any = false;
    for (int i = 0; i < inputs->n; i++)
        any |= inputs->items[i].kind == NDP_INPUT_LABELS;
    return any;
}

ndp_status ndp_step_end(const ndp_step_lane *l) {
    const ndp_program *p = l->program;
    for (int i = 0; i < p->opts.model->n_buffers; i++) {
        NDP_TRY(end_buffer(l, i));
        if (l->shared->buffers[i].trainable)
            NDP_TRY(end_states(l, i));
    }
    if (has_labels(p->opts.model->inputs)) {
        NDP_TRY(ndp_step_scalar_needs(l, NDP_STEP_VALID));
        NDP_TRY(ndp_step_scalar_needs(l, NDP_STEP_LOSS));
        NDP_TRY(ndp_step_scalar_needs(l, NDP_STEP_SCALE));
    }
    if (ndp_program_has_router_losses(p))
        NDP_TRY(ndp_step_scalar_needs(l, NDP_STEP_ROUTERS));
    if (trains(p))
        NDP_TRY(ndp_step_scalar_needs(l, NDP_STEP_NORM));
    return l->n_under_way == 0 ? NDP_OK : ndp_step_refuse(l, "%d communications are not waited for", l->n_under_way);
}

/* ---- lanes ---- */

static ndp_status take_lane(ndp_step_world *w, int lane) {
    ndp_step_lane *l = &w->items[lane];
    const ndp_program *p = w->lanes->items[lane].program;
    size_t buffers = (size_t)p->opts.model->n_buffers + 1;
    *l = (ndp_step_lane){.world = w, .lane = lane, .program = p, .walk = NDP_WALK_START, .part.bytes.block = NDP_NONE};
    for (int i = 0; i < w->n_programs; i++)
        if (w->programs[i].program == p)
            l->shared = &w->programs[i];
    if (!l->shared) {
        NDP_TRY(take_program(w->lanes, p, &w->programs[w->n_programs++]));
        l->shared = &w->programs[w->n_programs - 1];
    }
    l->under_way = calloc((size_t)p->n_works + 1, sizeof(void *));
    l->list = calloc((size_t)p->n_works + 1, sizeof(void *));
    l->read = malloc(buffers * sizeof *l->read);
    l->wrote = calloc(buffers, sizeof *l->wrote);
    if (!l->under_way || !l->list || !l->read || !l->wrote)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory to check %d ranks", w->lanes->n);
    for (size_t i = 0; i < buffers; i++)
        l->read[i] = NDP_NONE;
    for (int i = 0; i < NDP_CHANNELS; i++)
        l->waited[i] = NDP_NONE;
    NDP_TRY(ndp_step_others_init(l));
    NDP_TRY(ndp_memory_init(&l->shared->places, &l->memory));
    for (int i = 0; i < p->opts.model->n_buffers; i++)
        NDP_TRY(put_buffer(l, i));
    return put_numbers(l);
}

/* Micro-batches are weighed as parts of one dimension. */
static ndp_status weigh_micro_batches(ndp_step_world *w) {
    const ndp_program *p = w->lanes->items[0].program;
    int64_t left_out = p->repeats.n > 0 ? p->repeats.items[0].times - w->visits.first : 0;
    left_out = left_out < 0 ? 0 : left_out < w->visits.without ? left_out : w->visits.without;
    w->without = p->repeats.n > 0 ? (int)left_out * p->repeats.items[0].micro_batches : 0;
    w->micro_batches = p->opts.step.accumulation - w->without;
    w->weights = malloc(((size_t)w->micro_batches + 1) * sizeof *w->weights);
    if (!w->weights)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory to check %d micro-batches", w->micro_batches);
    for (int m = 0; m < w->micro_batches; m++)
        w->weights[m] = ndp_range_share(ndp_dim_make(0, 'm'), w->micro_batches, m, m + 1);
    return NDP_OK;
}

ndp_status ndp_step_world_init(const ndp_lanes *l, const ndp_units *u, ndp_visits visits, ndp_step_world *out) {
    size_t n = (size_t)l->n, pp = (size_t)l->size[NDP_PP];
    *out = (ndp_step_world){.lanes = l,
                            .units = u,
                            .visits = visits,
                            .whole = l->items[0].program->opts.whole,
                            .items = calloc(n, sizeof *out->items),
                            .programs = calloc(n, sizeof *out->programs),
                            .members = calloc(n, sizeof *out->members),
                            .mail = calloc(n * pp * 2, sizeof *out->mail)};
    if (!out->items || !out->programs || !out->members || !out->mail)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory to check %d ranks", l->n);
    out->data = (ndp_own)((l->size[NDP_DP_REPLICATE] > 1 ? NDP_OWN_REPLICATE : 0) |
                          (l->size[NDP_DP_SHARD] > 1 ? NDP_OWN_SHARD : 0));
    NDP_TRY(weigh_micro_batches(out));
    NDP_TRY(ndp_step_norm(out, &out->norm));
    NDP_TRY(ndp_meetings_init(l, NDP_CHANNELS, &out->meetings));
    for (int i = 0; i < l->n; i++) {
        for (int kind = 0; kind < NDP_GROUPS; kind++)
            out->members[i][kind] = ndp_lane_members(l, i, (ndp_group_kind)kind);
        NDP_TRY(take_lane(out, i));
    }
    return NDP_OK;
}

static void release_lane(ndp_step_lane *l) {
    for (int i = 0; i < NDP_CHANNELS; i++)
        free(l->begun[i]);
    free(l->part.sum.items);
    free(l->under_way);
    free(l->list);
    ndp_step_others_release(l);
    free(l->read);
    free(l->wrote);
    ndp_memory_release(&l->memory);
}

static void release_program(ndp_step_program *s) {
    for (int i = 0; s->buffers && i < s->program->opts.model->n_buffers; i++) {
        free(s->buffers[i].stretches);
        free(s->buffers[i].pieces);
    }
    free(s->buffers);
    free(s->local);
    ndp_step_places_release(&s->places);
}

void ndp_step_world_release(ndp_step_world *w) {
    for (int i = 0; w->items && i < w->lanes->n; i++)
        release_lane(&w->items[i]);
    for (int i = 0; i < w->n_programs; i++)
        release_program(&w->programs[i]);
    for (int i = 0; w->mail && i < w->lanes->n * w->lanes->size[NDP_PP] * 2; i++)
        free(w->mail[i].items);
    while (w->all) {
        ndp_under_way *u = w->all;
        w->all = u->other;
        free(u->spans.items);
        free(u->added.items);
        free(u->result.items);
        free(u);
    }
    ndp_meetings_release(&w->meetings);
    free(w->mail);
    free(w->members);
    free(w->programs);
    free(w->items);
    free(w->weights);
    *w = (ndp_step_world){0};
}
