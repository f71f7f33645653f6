#include "step/engine.h"

#include "base/clock.h"
#include "model/facts.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct ndp_engine {
    ndp_engine_opts opts;
    ndp_model model; /* this rank's */
    ndp_unit_program units[NDP_MAX_GRAPHS];
    ndp_program program;
    ndp_comm *world, *comms[NDP_GROUPS];
    ndp_comm *
        gathers; /* the shard group's second channel: gathers overlap with reductions and are waited for between them */
    ndp_window *windows[NDP_REGIONS];
    ndp_work *works;      /* by begin instruction */
    ndp_work *unit_works; /* by call of the unit that runs */
    double *begun;        /* when: instructions, then calls */
    void **caches;        /* by unit: keys, values */
    int32_t cache_row;
    int at; /* the instruction that runs, for messages */
    ndp_profile profile;
    bool profile_ops;
};

/* ---- building ---- */

static ndp_status lower_units(ndp_engine *e) {
    ndp_lower_opts opts = {.backend = (ndp_backend)e->opts.device->backend,
                           .threads = e->opts.threads,
                           .prepare = e->opts.device->executes};
    for (int g = 0; g < e->model.n_graphs; g++)
        NDP_TRY(ndp_lower(&e->model.graphs[g], &opts, &e->units[g]));
    return NDP_OK;
}

static ndp_status build_program(ndp_engine *e, int node_ranks) {
    const ndp_optimizer *o = &e->opts.optimizer;
    ndp_program_opts opts = {.model = &e->model,
                             .units = e->units,
                             .mesh = e->opts.mesh,
                             .accumulation = e->opts.accumulation,
                             .node_ranks = node_ranks,
                             .reshard = e->opts.reshard,
                             .recompute = e->opts.recompute,
                             .optimizer = o->kind,
                             .optimizer_states = ndp_optim_states(o->kind, o->momentum),
                             .weights_of = e->opts.weights_of ? &e->opts.weights_of->program : NULL};
    return ndp_program_build(&opts, &e->program);
}

static ndp_status connect(ndp_engine *e) {
    ndp_transport *t = e->opts.transport;
    ndp_group all = {0, 1, ndp_transport_world(t), ndp_transport_rank(t)};
    NDP_TRY(ndp_comm_create(t, all, "world", &e->world));
    NDP_TRY(ndp_comm_create(t, ndp_mesh_group(&e->opts.mesh, NDP_GROUP_SHARD), "shard", &e->gathers));
    static const ndp_group_kind used[] = {NDP_GROUP_REPLICATE, NDP_GROUP_SHARD, NDP_GROUP_LOSS, NDP_GROUP_CP,
                                          NDP_GROUP_SP,        NDP_GROUP_TP,    NDP_GROUP_KV};
    for (int i = 0; i < NDP_COUNT(used); i++)
        NDP_TRY(
            ndp_comm_create(t, ndp_mesh_group(&e->opts.mesh, used[i]), ndp_group_name(used[i]), &e->comms[used[i]]));
    return NDP_OK;
}

/* Does the other engine have the tables and types that this one's weights are read by? */
static ndp_status check_lender(const ndp_engine *e) {
    const ndp_engine *from = e->opts.weights_of;
    const ndp_model *a = &e->model, *b = from ? &from->model : NULL;
    bool same = !from || (a->n_buffers == b->n_buffers && a->opts.compute == b->opts.compute &&
                          a->opts.master == b->opts.master && a->opts.mode != NDP_MODEL_TRAIN);
    for (int i = 0; from && same && i < a->n_buffers; i++)
        same = a->buffers[i].segments.elements == b->buffers[i].segments.elements;
    return same ? NDP_OK
                : NDP_FAIL(
                      NDP_EBUG,
                      "weights of another engine: one that trains, or has other tables or types, cannot read those");
}

/* Takes the planned memory. Where a group cannot share memory, the program is planned again with real gathers. */
static ndp_status take_memory(ndp_engine *e) {
    size_t shared = e->program.bytes[NDP_REGION_SHARED];
    if (shared > 0) {
        ndp_status st = ndp_window_create(e->gathers, shared, true, &e->windows[NDP_REGION_SHARED]);
        if (st == NDP_ENOTSUP) {
            ndp_program_release(&e->program);
            NDP_TRY(build_program(e, 1));
        } else {
            NDP_TRY(st);
        }
    }
    if (e->opts.weights_of) {
        e->windows[NDP_REGION_LENT_ARENA] = e->opts.weights_of->windows[NDP_REGION_ARENA];
        e->windows[NDP_REGION_LENT_SHARED] = e->opts.weights_of->windows[NDP_REGION_SHARED];
    }
    return ndp_window_create(e->world, e->program.bytes[NDP_REGION_ARENA], false, &e->windows[NDP_REGION_ARENA]);
}

static void *at(const ndp_engine *e, ndp_place place) {
    if (place.block == NDP_NONE)
        return NULL;
    const ndp_block *b = &e->program.blocks[place.block];
    return (char *)ndp_window_data(e->windows[b->region]) + b->offset + place.offset;
}

static int longest_list(const ndp_engine *e) {
    int most = 0;
    for (int g = 0; g < e->model.n_graphs; g++)
        for (int phase = 0; phase < NDP_PHASES; phase++)
            most = e->units[g].lists[phase].n > most ? e->units[g].lists[phase].n : most;
    return most;
}

static ndp_status agree(const ndp_engine *e) {
    for (int channel = 0; channel < NDP_EVENT_CHANNELS; channel++) {
        ndp_comm *c = channel == NDP_GROUPS ? e->gathers : e->comms[channel];
        if (c)
            NDP_TRY(ndp_program_agree(&e->program, channel, c));
    }
    return NDP_OK;
}

static ndp_status ready(ndp_engine *e) {
    const ndp_model *m = &e->model;
    NDP_TRY(connect(e));
    NDP_TRY(take_memory(e));
    NDP_TRY(agree(e));
    e->works = calloc((size_t)e->program.n + 1, sizeof *e->works);
    e->unit_works = calloc((size_t)longest_list(e) + 1, sizeof *e->unit_works);
    e->caches = calloc(2 * (size_t)m->n_units, sizeof *e->caches);
    e->begun = calloc((size_t)(e->program.n + longest_list(e)) + 1, sizeof *e->begun);
    if (!e->works || !e->unit_works || !e->begun || !e->caches)
        return NDP_FAIL(NDP_ENOMEM, "no memory for the engine");
    ndp_rope_tables(&m->facts, m->opts.positions, m->opts.compute == NDP_F64 ? NDP_F64 : NDP_F32,
                    at(e, e->program.rope));
    return NDP_OK;
}

ndp_status ndp_engine_create(const ndp_engine_opts *opts, ndp_engine **out) {
    ndp_engine *e = calloc(1, sizeof *e);
    if (!e)
        return NDP_FAIL(NDP_ENOMEM, "no memory for the engine");
    e->opts = *opts;
    int tp = opts->mesh.layout.size[NDP_TP], kv_heads = opts->model->facts.kv_heads;
    e->opts.mesh.kv_copies = tp > kv_heads ? tp / kv_heads : 1;
    int node_ranks = opts->node_ranks  ? opts->node_ranks
                     : opts->transport ? ndp_transport_node_ranks(opts->transport)
                                       : 1;
    ndp_status st = ndp_parallel_apply(opts->model, &e->opts.mesh, &opts->parallel, &e->model);
    if (st == NDP_OK)
        st = lower_units(e);
    if (st == NDP_OK)
        st = check_lender(e);
    if (st == NDP_OK)
        st = build_program(e, node_ranks);
    if (st == NDP_OK && opts->transport && opts->device->executes)
        st = ready(e);
    if (st != NDP_OK) {
        ndp_engine_destroy(e);
        return st;
    }
    *out = e;
    return NDP_OK;
}

void ndp_engine_destroy(ndp_engine *e) {
    if (!e)
        return;
    for (int i = 0; i < NDP_REGIONS; i++)
        if (!ndp_region_is_lent((ndp_region)i))
            ndp_window_destroy(e->windows[i]);
    for (int i = 0; i < NDP_GROUPS; i++)
        ndp_comm_destroy(e->comms[i]);
    ndp_comm_destroy(e->gathers);
    ndp_comm_destroy(e->world);
    ndp_program_release(&e->program);
    for (int i = 0; i < NDP_COUNT(e->units); i++)
        ndp_unit_program_release(&e->units[i]);
    ndp_model_release(&e->model);
    free(e->works);
    free(e->unit_works);
    free(e->begun);
    free(e->caches);
    free(e);
}

const ndp_program *ndp_engine_program(const ndp_engine *e) { return &e->program; }

const ndp_model *ndp_engine_model(const ndp_engine *e) { return &e->model; }

/* ---- owned slices ---- */

void *ndp_engine_slice(const ndp_engine *e, ndp_owned_kind kind, int buffer) {
    const ndp_owned *o = &e->program.owned[buffer];
    const ndp_place places[] = {o->master, o->grad, o->state[0], o->state[1]};
    bool training = e->model.opts.mode == NDP_MODEL_TRAIN;
    return kind == NDP_OWNED_MASTER || training ? at(e, places[kind]) : NULL;
}

const ndp_shard *ndp_engine_shard(const ndp_engine *e, int buffer) { return &e->program.owned[buffer].shard; }

void ndp_engine_publish(ndp_engine *e) {
    const ndp_model *m = &e->model;
    for (int i = 0; i < m->n_buffers; i++) {
        const ndp_owned *o = &e->program.owned[i];
        if (!o->shard.same)
            ndp_convert(at(e, o->master), m->opts.master, at(e, o->send), m->opts.compute, o->shard.slice);
    }
}

static ndp_scalars *scalars(const ndp_engine *e) { return at(e, e->program.scalars); }

ndp_batch ndp_engine_batch(const ndp_engine *e, int micro_batch) {
    int64_t tokens = e->model.tokens, queries = e->model.queries;
    int32_t *first = (int32_t *)((char *)at(e, e->program.batch) + (size_t)micro_batch * e->program.batch_stride);
    int32_t *q_pos = first + 3 * tokens;
    return (ndp_batch){first, first + tokens, first + 2 * tokens, q_pos, q_pos + queries, q_pos + 2 * queries};
}

void ndp_engine_load(ndp_engine *e, int micro_batch, const ndp_micro_batch *whole) {
    ndp_rows rows = ndp_rows_cut(e->model.opts.rows, &e->opts.mesh, &e->opts.parallel);
    ndp_batch b = ndp_engine_batch(e, micro_batch);
    for (int64_t i = 0; i < rows.tokens; i++) {
        int64_t t = ndp_rows_token(&rows, i);
        bool real = t < rows.real;
        b.tokens[i] = real ? whole->tokens[t] : 0;
        b.labels[i] = real ? whole->labels[t] : -1;
        b.rope_pos[i] = real ? whole->rope_pos[t] : 0;
    }
    for (int64_t i = 0; i < rows.queries; i++) {
        int64_t t = ndp_rows_query(&rows, i);
        b.q_pos[i] = (int32_t)t;
        b.q_low[i] = t < rows.real ? whole->q_low[t] : (int32_t)t;
    }
    for (int64_t i = 0; i < rows.keys; i++)
        b.k_pos[i] = (int32_t)ndp_rows_key(&rows, i);
}

/* ---- instructions ---- */

static void do_count(ndp_engine *e) {
    int64_t valid = 0, rows = e->model.tokens;
    for (int m = 0; m < e->opts.accumulation; m++) {
        const int32_t *labels = ndp_engine_batch(e, m).labels;
        for (int64_t t = 0; t < rows; t++)
            valid += labels[t] >= 0;
    }
    *scalars(e) = (ndp_scalars){.valid = valid};
}

static ndp_status begin(ndp_comm *c, ndp_collective kind, const void *in, void *out, int64_t count, ndp_dtype type,
                        bool add, ndp_work *work) {
    int64_t bytes = count * (int64_t)ndp_dtype_size(type);
    switch (kind) {
    case NDP_ALL_GATHER:
        return ndp_all_gather_begin(c, in, out, count, type, work);
    case NDP_REDUCE_SCATTER:
        return ndp_reduce_scatter_begin(c, in, out, count, type, add, work);
    case NDP_ALL_REDUCE:
        return ndp_all_reduce_begin(c, out, count, type, NDP_SUM, work);
    case NDP_ALL_TO_ALL:
        return ndp_all_to_all_begin(c, in, out, bytes, work);
    default:
        return ndp_shift_begin(c, in, out, bytes, work);
    }
}

/* A collective inside a unit. */
static ndp_status unit_collective(void *user, int index, const ndp_call *call, const ndp_op_call *operands) {
    ndp_engine *e = user;
    const ndp_view *in = &operands->in[0], *out = &operands->out[0];
    ndp_comm *c = e->comms[call->attr.group];
    double start = ndp_now();
    ndp_status st;
    ndp_comm_at(c, e->program.instrs[e->at].what, e->at, index);
    if (call->kind == NDP_CALL_BEGIN) {
        int64_t count = in->rows * in->cols;
        if (call->op->collective == NDP_REDUCE_SCATTER || call->op->collective == NDP_ALL_TO_ALL)
            count /= call->attr.ranks;
        st = begin(c, call->op->collective, in->data, out->data, count, in->dtype, false, &e->unit_works[index]);
        e->profile.unit_begin += ndp_now() - start;
        e->begun[e->program.n + index] = start;
    } else {
        st = ndp_wait(&e->unit_works[call->partner]);
        double now = ndp_now();
        e->profile.unit_wait += now - start;
        e->profile.under_way += now - e->begun[e->program.n + call->partner];
    }
    return st;
}

/* NULL: the model has no such table. */
static void *rope_table(const ndp_engine *e, int table) {
    const ndp_model *m = &e->model;
    if (table >= m->facts.n_ropes)
        return NULL;
    size_t size = ndp_dtype_size(m->opts.compute == NDP_F64 ? NDP_F64 : NDP_F32);
    return (char *)at(e, e->program.rope) + (size_t)ndp_rope_elements(&m->facts, m->opts.positions, table) * size;
}

static ndp_status do_run(ndp_engine *e, const ndp_instr *in) {
    ndp_list_run_opts run = {.backend = (ndp_backend)e->opts.device->backend,
                             .threads = e->opts.threads,
                             .accumulate = in->accumulate,
                             .op_seconds = e->profile_ops ? e->profile.op : NULL,
                             .collective = unit_collective,
                             .user = e};
    for (int i = 0; i < NDP_BASE_DATA; i++)
        run.bases[i] = at(e, (ndp_place){in->bases[i], 0});
    ndp_batch b = ndp_engine_batch(e, in->micro_batch);
    void *const data[NDP_DATA_IDS] = {[NDP_DATA_TOKENS] = b.tokens,
                                      [NDP_DATA_LABELS] = b.labels,
                                      [NDP_DATA_ROPE_POS] = b.rope_pos,
                                      [NDP_DATA_Q_POS] = b.q_pos,
                                      [NDP_DATA_Q_LOW] = b.q_low,
                                      [NDP_DATA_K_POS] = b.k_pos,
                                      [NDP_DATA_ROPE_TABLE] = rope_table(e, 0),
                                      [NDP_DATA_ROPE_TABLE_2] = rope_table(e, 1),
                                      [NDP_DATA_LOSS_SCALE] = &scalars(e)->scale,
                                      [NDP_DATA_LOSS] = &scalars(e)->loss,
                                      [NDP_DATA_CACHE_ROW] = &e->cache_row,
                                      [NDP_DATA_K_CACHE] = e->caches[2 * in->unit],
                                      [NDP_DATA_V_CACHE] = e->caches[2 * in->unit + 1]};
    memcpy(run.data, data, sizeof data);
    return ndp_list_run(ndp_program_list(&e->program, in), &run);
}

static ndp_comm *comm_of(const ndp_engine *e, const ndp_instr *in) {
    return in->kind == NDP_ALL_GATHER ? e->gathers : e->comms[in->group];
}

static ndp_status do_begin(ndp_engine *e, const ndp_instr *in, ndp_work *work) {
    ndp_comm *c = comm_of(e, in);
    ndp_comm_at(c, in->what, e->at, NDP_NONE);
    return begin(c, in->kind, at(e, in->in), at(e, in->out), in->count, in->type, in->add, work);
}

static void do_norm(ndp_engine *e) {
    const ndp_model *m = &e->model;
    double sum = 0;
    for (int i = 0; i < m->n_buffers; i++) {
        const ndp_shard *s = ndp_engine_shard(e, i);
        const char *grad = ndp_engine_slice(e, NDP_OWNED_GRAD, i);
        ndp_piece piece;
        for (int cursor = 0; ndp_segments_piece(&m->buffers[i].segments, s->shards, s->index, &cursor, &piece);)
            sum += ndp_sum_squares(grad + (size_t)piece.slice_first * ndp_dtype_size(m->opts.master), m->opts.master,
                                   piece.count, e->opts.threads) /
                   piece.segment->copies;
    }
    scalars(e)->squares = sum;
}

static void do_clip(ndp_engine *e) {
    ndp_scalars *s = scalars(e);
    s->norm = sqrt(s->squares);
    s->clip = ndp_clip_factor(s->norm, e->opts.optimizer.max_norm);
}

static void do_update(ndp_engine *e, int buffer, double lr, int64_t update) {
    const ndp_model *m = &e->model;
    const ndp_optimizer *opt = &e->opts.optimizer;
    const ndp_shard *s = ndp_engine_shard(e, buffer);
    size_t size = ndp_dtype_size(m->opts.master);
    char *slices[4];
    for (int k = 0; k < 4; k++)
        slices[k] = ndp_engine_slice(e, (ndp_owned_kind)k, buffer);
    uint16_t *copy = s->same ? NULL : at(e, e->program.owned[buffer].send);
    ndp_piece piece;
    for (int cursor = 0; ndp_segments_piece(&m->buffers[buffer].segments, s->shards, s->index, &cursor, &piece);) {
        size_t skip = (size_t)piece.slice_first * size;
        ndp_optim_call call = {.type = m->opts.master,
                               .weight = slices[0] + skip,
                               .grad = slices[1] + skip,
                               .state = {slices[2] ? slices[2] + skip : NULL, slices[3] ? slices[3] + skip : NULL},
                               .copy = copy ? copy + piece.slice_first : NULL,
                               .n = piece.count,
                               .lr = lr,
                               .beta1 = opt->beta1,
                               .beta2 = opt->beta2,
                               .eps = opt->eps,
                               .momentum = opt->momentum,
                               .weight_decay = piece.segment->decay ? opt->weight_decay : 0.0,
                               .grad_scale = scalars(e)->clip,
                               .step = update + 1,
                               .threads = e->opts.threads};
        if (opt->kind == NDP_OPTIM_ADAMW)
            ndp_adamw(&call);
        else
            ndp_sgd(&call);
    }
}

static double *clock_of(ndp_profile *p, const ndp_instr *in) {
    switch (in->code) {
    case NDP_DO_RUN:
        return &p->phase[in->phase];
    case NDP_DO_BEGIN:
        return &p->begin;
    case NDP_DO_WAIT:
        return &p->wait;
    case NDP_DO_UPDATE:
        return &p->update;
    default:
        return &p->norm;
    }
}

static ndp_status execute(ndp_engine *e, int index, double lr, int64_t update, bool update_weights) {
    const ndp_instr *in = &e->program.instrs[index];
    ndp_scalars *s = scalars(e);
    e->at = index;
    switch (in->code) {
    case NDP_DO_COUNT:
        do_count(e);
        break;
    case NDP_DO_SCALE:
        s->scale = s->valid > 0 ? 1.0 / (double)s->valid : 0.0;
        break;
    case NDP_DO_RUN:
        return do_run(e, in);
    case NDP_DO_BEGIN:
        return do_begin(e, in, &e->works[index]);
    case NDP_DO_WAIT:
        ndp_comm_at(comm_of(e, in), in->what, index, NDP_NONE);
        return ndp_wait(&e->works[in->partner]);
    case NDP_DO_NORM:
        do_norm(e);
        break;
    case NDP_DO_CLIP:
        do_clip(e);
        break;
    default:
        if (update_weights)
            do_update(e, in->buffer, lr, update);
    }
    return NDP_OK;
}

ndp_status ndp_engine_step(ndp_engine *e, double lr, int64_t update, bool update_weights, ndp_step_result *out) {
    double start = ndp_now(), last = start;
    for (int i = 0; i < e->program.n; i++) {
        NDP_TRY(execute(e, i, lr, update, update_weights));
        double now = ndp_now();
        const ndp_instr *in = &e->program.instrs[i];
        *clock_of(&e->profile, in) += now - last;
        if (in->code == NDP_DO_BEGIN)
            e->begun[i] = last;
        if (in->code == NDP_DO_WAIT)
            e->profile.under_way += now - e->begun[in->partner];
        last = now;
    }
    e->profile.total += last - start;
    e->profile.steps++;
    const ndp_scalars *s = scalars(e);
    *out = (ndp_step_result){.loss = s->loss * s->scale, .grad_norm = s->norm, .tokens = s->valid};
    return NDP_OK;
}

const ndp_profile *ndp_engine_profile(const ndp_engine *e) { return &e->profile; }

void ndp_engine_profile_reset(ndp_engine *e, bool by_op) {
    e->profile = (ndp_profile){0};
    e->profile_ops = by_op;
}

/* ---- inference ---- */

void ndp_engine_cache(ndp_engine *e, int unit, void *k, void *v) {
    e->caches[2 * unit] = k;
    e->caches[2 * unit + 1] = v;
}

void ndp_engine_cache_row(ndp_engine *e, int32_t row) { e->cache_row = row; }

const void *ndp_engine_logits(const ndp_engine *e) {
    for (int i = e->program.n - 1; i >= 0; i--)
        if (e->program.instrs[i].code == NDP_DO_RUN)
            return at(e, (ndp_place){e->program.instrs[i].bases[NDP_BASE_OUTPUT], 0});
    return NULL;
}
