/* The host's side of an engine: weights, gradients and optimizer state are read and written, batches uploaded, tables
 * filled once. Training, checkpoints, verify and generation call these functions.
 *
 * Invariant: no function here follows an address of the device. Data moves by copies that are submitted to the engine's
 * queue, so a copy is ordered with the steps around it. A copy to or from the caller's memory is drained before the
 * function returns; the engine's own host memory (a batch, the steps' constants and results) is left unchanged until
 * the copy has run. */
#include "step/loss_rows.h"

#include <stdlib.h>
#include <string.h>

void *ndp_engine_at(const ndp_engine *e, ndp_address at) {
    if (at.block == NDP_NONE)
        return NULL;
    const ndp_block *b = &e->program.blocks[at.block];
    return (char *)ndp_window_data(e->windows[b->region]) + b->offset + at.offset;
}

ndp_status ndp_engine_drain(const ndp_engine *e, ndp_queue *q) {
    return e->queues ? ndp_transport_drain(e->queues, q) : e->opts.step.exec->device->drain(q);
}

ndp_status ndp_engine_explain(const ndp_engine *e, ndp_status st) {
    return e->queues ? ndp_transport_explain(e->queues, st) : st;
}

static ndp_status copy_rows(const ndp_engine *e, void *to, size_t to_pitch, const void *from, size_t from_pitch,
                            size_t width, size_t rows) {
    NDP_TRY(ndp_engine_drain(e, e->queue));
    NDP_TRY(
        ndp_engine_explain(e, e->opts.step.exec->device->copy(e->queue, to, to_pitch, from, from_pitch, width, rows)));
    return ndp_engine_drain(e, e->queue);
}

ndp_status ndp_engine_copy(const ndp_engine *e, void *to, const void *from, size_t bytes, bool settle) {
    if (settle)
        return copy_rows(e, to, bytes, from, bytes, bytes, 1);
    return ndp_engine_explain(e, e->opts.step.exec->device->copy(e->queue, to, bytes, from, bytes, bytes, 1));
}

/* ---- owned slices ---- */

static ndp_address slice_of(const ndp_engine *e, ndp_owned_kind kind, int buffer) {
    const ndp_owned *o = &e->program.owned[buffer];
    const ndp_address slices[NDP_OWNED_KINDS] = {
        [NDP_OWNED_MASTER] = o->master,     [NDP_OWNED_GRAD] = o->grad,        [NDP_OWNED_STATE0] = o->state[0],
        [NDP_OWNED_STATE1] = o->state[1],   [NDP_OWNED_CODES0] = o->codes[0],  [NDP_OWNED_CODES1] = o->codes[1],
        [NDP_OWNED_SCALES0] = o->scales[0], [NDP_OWNED_SCALES1] = o->scales[1]};
    bool kept = kind == NDP_OWNED_MASTER || e->model.opts.mode == NDP_MODEL_TRAIN;
    return kept ? slices[kind] : (ndp_address){NDP_NONE, 0};
}

bool ndp_engine_has(const ndp_engine *e, ndp_owned_kind kind, int buffer) {
    return slice_of(e, kind, buffer).block != NDP_NONE;
}

static bool is_state(ndp_owned_kind k) { return k == NDP_OWNED_STATE0 || k == NDP_OWNED_STATE1; }
static bool is_codes(ndp_owned_kind k) { return k == NDP_OWNED_CODES0 || k == NDP_OWNED_CODES1; }
/* Which state of the optimizer it belongs to. */
static int number_of(ndp_owned_kind k) { return (k - NDP_OWNED_STATE0) % NDP_OPTIMIZER_STATES; }

ndp_dtype ndp_engine_type(const ndp_engine *e, ndp_owned_kind kind, int buffer) {
    const ndp_storage *types = &e->model.buffers[buffer].storage;
    return kind == NDP_OWNED_MASTER ? (ndp_storage_is_split(types) ? NDP_F32 : types->master)
           : kind == NDP_OWNED_GRAD ? types->gradient
           : is_codes(kind)         ? NDP_U8
           : is_state(kind)         ? types->state
                                    : ndp_wide(types->state);
}

bool ndp_engine_keeps(const ndp_engine *e, ndp_owned_kind kind, const ndp_segment *s) {
    const ndp_optimizer_opts *o = ndp_update_opts_of(&e->program.groups, s);
    return kind < NDP_OWNED_STATE0 ||
           (number_of(kind) < ndp_optimizer_states(o) && ndp_optimizer_codes(o->name) != is_state(kind));
}

const char *ndp_engine_prefix(const ndp_engine *e, ndp_owned_kind kind, const ndp_segment *s) {
    const ndp_optimizer *o = ndp_optimizers[ndp_update_opts_of(&e->program.groups, s)->name];
    return kind < NDP_OWNED_STATE0            ? ""
           : is_state(kind) || is_codes(kind) ? o->state[number_of(kind)]
                                              : o->scales[number_of(kind)];
}

const ndp_shard *ndp_engine_shard(const ndp_engine *e, int buffer) { return &e->program.owned[buffer].shard; }

/* The address of an element of the slice; of scales, of the one in that place. */
static char *element_at(const ndp_engine *e, ndp_owned_kind kind, int buffer, int64_t first) {
    const ndp_owned *o = &e->program.owned[buffer];
    bool compact = is_state(kind) && o->state_n[number_of(kind)] < o->shard.slice;
    if (compact)
        first = ndp_pieces_place(&e->program.groups, &e->model.buffers[buffer].segments, o->shard.shards,
                                 o->shard.index, first);
    return (char *)ndp_engine_at(e, slice_of(e, kind, buffer)) +
           (size_t)first * ndp_dtype_size(ndp_engine_type(e, kind, buffer));
}

/* n elements of fp32 weights in two parts, from `first` on, `stride` apart, from or to `host`. */
static ndp_status copy_split(const ndp_engine *e, int buffer, int64_t first, int64_t n, int64_t stride, bool read,
                             float *host) {
    const ndp_owned *o = &e->program.owned[buffer];
    const ndp_address at[] = {o->send, o->master};
    size_t pitch = (size_t)stride * sizeof(uint16_t), width = sizeof(uint16_t), rows = (size_t)n;
    uint16_t *parts = malloc(2 * rows * sizeof *parts + 1), *high = parts, *rest = parts + n;
    NDP_CHECK_MEMORY(parts, "for the parts of %lld weights", (long long)n);
    for (int64_t i = 0; i < n && !read; i++)
        high[i] = ndp_split_high(host[i]), rest[i] = ndp_split_rest(host[i], high[i]);
    ndp_status st = NDP_OK;
    for (int k = 0; st == NDP_OK && k < 2; k++) {
        char *there = (char *)ndp_engine_at(e, at[k]) + (size_t)first * width;
        uint16_t *here = k == 0 ? high : rest;
        if (stride == 1)
            st = ndp_engine_copy(e, read ? (void *)here : there, read ? (void *)there : here, rows * width, true);
        else if (read)
            st = copy_rows(e, here, width, there, pitch, width, rows);
        else
            st = copy_rows(e, there, pitch, here, width, width, rows);
    }
    for (int64_t i = 0; i < n && read; i++)
        host[i] = ndp_split_join(high[i], rest[i]);
    free(parts);
    return st;
}

static bool is_split(const ndp_engine *e, ndp_owned_kind kind, int buffer) {
    return kind == NDP_OWNED_MASTER && ndp_storage_is_split(&e->model.buffers[buffer].storage);
}

ndp_status ndp_engine_read(const ndp_engine *e, ndp_owned_kind kind, int buffer, int64_t first, int64_t n,
                           int64_t stride, void *host) {
    if (is_split(e, kind, buffer))
        return copy_split(e, buffer, first, n, stride, true, host);
    size_t size = ndp_dtype_size(ndp_engine_type(e, kind, buffer));
    const char *from = element_at(e, kind, buffer, first);
    if (stride == 1)
        return ndp_engine_copy(e, host, from, (size_t)n * size, true);
    return copy_rows(e, host, size, from, (size_t)stride * size, size, (size_t)n);
}

ndp_status ndp_engine_write(ndp_engine *e, ndp_owned_kind kind, int buffer, int64_t first, int64_t n, int64_t stride,
                            const void *host) {
    if (is_split(e, kind, buffer))
        return copy_split(e, buffer, first, n, stride, false, (float *)host);
    size_t size = ndp_dtype_size(ndp_engine_type(e, kind, buffer));
    char *to = element_at(e, kind, buffer, first);
    if (stride == 1)
        return ndp_engine_copy(e, to, host, (size_t)n * size, true);
    return copy_rows(e, to, (size_t)stride * size, host, size, size, (size_t)n);
}

/* Calls the op `copy` for each buffer whose kept and master types differ; of weights in two parts one is kept. */
ndp_status ndp_engine_publish(ndp_engine *e) {
    const ndp_model *m = &e->model;
    ndp_call_opts opts = {.exec = e->opts.step.exec, .queue = e->queue, .bases = e->addresses};
    for (int i = 0; i < m->n_buffers; i++) {
        const ndp_owned *o = &e->program.owned[i];
        const ndp_storage *types = &m->buffers[i].storage;
        int64_t rows = o->shard.slice / NDP_SEGMENT_ALIGN; /* threads share rows */
        ndp_operand io[] = {ndp_operand_at(o->master, rows, NDP_SEGMENT_ALIGN, types->master),
                            {.base = NDP_NONE},
                            ndp_operand_at(o->send, rows, NDP_SEGMENT_ALIGN, types->kept)};
        ndp_op_attr attr = {.type = types->kept};
        ndp_call copy = {.op = &ndp_op_copy,
                         .kernel = e->opts.step.exec->device->kernels[NDP_OP_copy],
                         .attr = attr,
                         .in = io,
                         .n_in = 2,
                         .out = io + 2,
                         .n_out = 1,
                         .scratch = NDP_NONE,
                         .pgrad = NDP_NONE};
        if (!o->shard.same && !ndp_storage_is_split(types))
            NDP_TRY(ndp_call_run(&copy, i, &opts));
    }
    return ndp_engine_drain(e, e->queue);
}

/* ---- batches ---- */

static void *device_batch(const ndp_engine *e, int micro_batch) {
    return (char *)ndp_engine_at(e, e->program.batch) + (size_t)micro_batch * e->program.batch_stride;
}

/* The value of row `t` of the micro-batch; `real`: it is not padding. */
static int32_t value_at(const ndp_micro_batch *b, ndp_input_kind kind, int64_t t, bool real) {
    int32_t row = real && b->places ? b->places[t] : (int32_t)(b->first_row + t);
    switch (kind) {
    case NDP_INPUT_TOKENS:
        return real ? b->tokens[t] : 0;
    case NDP_INPUT_LABELS:
        return real && b->labels ? b->labels[t] : -1;
    case NDP_INPUT_POSITIONS:
        return !real ? 0 : b->positions ? b->positions[t] : row;
    case NDP_INPUT_STARTS:
        return !real ? row : b->starts ? b->starts[t] : 0;
    case NDP_INPUT_STATE_STARTS:
        return !real ? row : b->starts && !b->one_state ? b->starts[t] : 0;
    case NDP_INPUT_SAMPLES:
        return !real ? -1 : b->samples ? b->samples[t] : 0;
    case NDP_INPUT_KEYS:
        return real && b->keys ? b->keys[t] : 0;
    case NDP_INPUT_DOCUMENTS:
        return real && b->documents ? b->documents[t] : -1;
    default:
        return row;
    }
}

/* Numbers of rows to zeros: those of padding, and where the batch has none, stay 0. */
static void fill_numbers(const ndp_engine *e, const ndp_input *in, const ndp_row_cut *cut, int64_t real,
                         const ndp_micro_batch *whole, void *to) {
    const double *from = in->kind == NDP_INPUT_WEIGHTS  ? whole->weights
                         : in->kind == NDP_INPUT_SCALES ? whole->scales
                                                        : NULL;
    for (int64_t i = 0; from && i < e->model.inputs->rows[in->extent]; i++) {
        int64_t t = ndp_row_cut_at(cut, in->extent, i);
        ((double *)to)[i] = t < real ? from[t] : 0;
    }
}

/* Rows of the keys' extent are numbered from 0, since a kv cache holds all of them. */
static void fill_input(const ndp_engine *e, int input, const ndp_micro_batch *whole, char *batch) {
    const ndp_input *in = &e->model.inputs->items[input];
    ndp_row_cut cut = ndp_cut_rows(e->model.opts.rows, &e->opts.step.mesh, &e->opts.step.parallel);
    int64_t real = whole->rows ? whole->rows : cut.real;
    int32_t *to = (int32_t *)(void *)(batch + e->program.input_at[input]);
    ndp_micro_batch b = *whole;
    memset(to, 0, ndp_input_bytes(e->model.inputs, input));
    if (in->extent == NDP_EXTENT_DOCUMENTS) {
        if (in->kind == NDP_INPUT_REFERENCE && whole->reference)
            memcpy(to, whole->reference, ndp_input_bytes(e->model.inputs, input));
        return;
    }
    if (in->kind == NDP_INPUT_WEIGHTS || in->kind == NDP_INPUT_SCALES || in->kind == NDP_INPUT_ROW_NUMBERS) {
        fill_numbers(e, in, &cut, real, whole, to);
        return;
    }
    if (ndp_input_is_of_mixtures(in->kind)) {
        ndp_engine_fill_mixtures(e, in, real, whole, to);
        return;
    }
    if (in->extent == NDP_EXTENT_KEYS)
        b.first_row = 0, b.places = NULL;
    for (int64_t i = 0; i < e->model.inputs->rows[in->extent]; i++) {
        int64_t t = ndp_row_cut_at(&cut, in->extent, i);
        to[i] = value_at(&b, in->kind, t, t < real);
        if (in->kind == NDP_INPUT_STATE_STARTS)
            to[i] += (int32_t)(i - t);
    }
}

/* The next of the host's arrays. There are enough for the pending steps: loading a micro-batch again before its upload
 * finishes drains the queue. */
static ndp_status take_batch(ndp_engine *e, char **out) {
    if (e->host.loaded - e->host.copied == e->host.n_batches) {
        NDP_TRY(ndp_engine_drain(e, e->queue));
        e->host.copied = e->host.loaded;
    }
    *out = (char *)e->host.batches + (size_t)(e->host.loaded++ % e->host.n_batches) * e->program.batch_stride;
    return NDP_OK;
}

ndp_status ndp_engine_load(ndp_engine *e, int micro_batch, const ndp_micro_batch *whole) {
    char *batch;
    NDP_TRY(take_batch(e, &batch));
    for (int i = 0; i < e->model.inputs->n; i++)
        if (ndp_input_is_of_batch(e->model.inputs->items[i].kind))
            fill_input(e, i, whole, batch);
    return ndp_engine_copy(e, device_batch(e, micro_batch), batch, e->program.batch_stride, false);
}

static ndp_status find_input(const ndp_engine *e, const char *name, int *out) {
    *out = ndp_inputs_named(e->model.inputs, name);
    return *out >= 0 ? NDP_OK : NDP_FAIL(NDP_EINVAL, "the model has no input %s", name);
}

ndp_status ndp_engine_input(ndp_engine *e, int micro_batch, const char *name, void *out) {
    int input;
    NDP_TRY(find_input(e, name, &input));
    int unit = ndp_input_is_of_mixtures(e->model.inputs->items[input].kind) ? NDP_NONE : 0;
    return ndp_engine_copy(e, out, ndp_engine_input_at(e, input, unit, micro_batch),
                           ndp_input_bytes(e->model.inputs, input), true);
}

ndp_status ndp_engine_rows(ndp_engine *e, int micro_batch, const char *name, int column, double *out) {
    int input;
    NDP_TRY(find_input(e, name, &input));
    const ndp_input *in = &e->model.inputs->items[input];
    ndp_row_cut cut = ndp_cut_rows(e->model.opts.rows, &e->opts.step.mesh, &e->opts.step.parallel);
    int64_t n = e->model.inputs->rows[in->extent];
    void *own = malloc(ndp_input_bytes(e->model.inputs, input) + 1);
    NDP_CHECK_MEMORY(own, "for %s of %lld rows", name, (long long)n);
    ndp_status st = ndp_engine_input(e, micro_batch, name, own);
    ndp_view v = {own, in->type, n, in->cols, in->cols};
    for (int64_t i = 0; st == NDP_OK && i < n; i++) {
        int64_t t = ndp_row_cut_at(&cut, in->extent, i);
        if (t < cut.real)
            out[t] = ndp_view_get(&v, i, column);
    }
    free(own);
    return st;
}

void *ndp_engine_input_at(const ndp_engine *e, int input, int unit, int micro_batch) {
    const ndp_input *in = &e->model.inputs->items[input];
    if (in->kind == NDP_INPUT_LENT)
        return e->lent[unit * NDP_MAX_INPUTS + input];
    if (in->kind == NDP_INPUT_LOADS)
        return ndp_engine_at(e, ndp_program_loads_of(&e->program, unit));
    char *at = ndp_engine_at(e, ndp_program_input(&e->program, input, micro_batch));
    if (ndp_input_is_of_mixtures(in->kind)) {
        int mixture = unit == NDP_NONE ? NDP_NONE : e->model.units[unit].mixture;
        int64_t before = mixture == NDP_NONE ? 0 : mixture * e->model.inputs->rows[in->extent];
        return at + (size_t)(before * in->cols) * ndp_dtype_size(in->type);
    }
    return in->kind == NDP_INPUT_UNIT_TABLE ? at + (size_t)(unit * in->cols) * ndp_dtype_size(in->type) : at;
}

/* ---- inference ---- */

ndp_status ndp_engine_map(ndp_engine *e, size_t bytes, void **out) {
    NDP_TRY(ndp_array_reserve(&e->mapped, &e->mapped_capacity, e->n_mapped + 1, sizeof *e->mapped));
    NDP_TRY(e->opts.step.exec->device->memory_map(e->context, bytes, NDP_MEMORY_DEVICE, out));
    e->mapped[e->n_mapped].data = *out;
    e->mapped[e->n_mapped++].bytes = bytes;
    return NDP_OK;
}

ndp_status ndp_engine_lend(ndp_engine *e, int unit, const char *name, void *memory) {
    int input;
    NDP_TRY(find_input(e, name, &input));
    e->lent[unit * NDP_MAX_INPUTS + input] = memory;
    return NDP_OK;
}

/* Logits are the output of the program's last run. */
ndp_status ndp_engine_logits(const ndp_engine *e, int64_t row, void *host) {
    const ndp_graph *g = &e->model.graphs[e->model.units[e->model.n_units - 1].graph];
    size_t bytes = (size_t)g->values[g->output].view.cols * ndp_dtype_size(e->model.opts.compute);
    for (int i = e->program.n - 1; i >= 0; i--) {
        const ndp_instr *in = &e->program.instrs[i];
        if (in->code == NDP_DO_RUN)
            return ndp_engine_copy(e, host, (char *)e->addresses[in->bases[NDP_BASE_OUTPUT]] + (size_t)row * bytes,
                                   bytes, true);
    }
    return NDP_FAIL(NDP_EBUG, "logits of a program without runs");
}

/* ---- memory of the host, and tables ---- */

/* The host computes a table and uploads it once. */
static ndp_status fill_table(ndp_engine *e, int input) {
    const ndp_input *in = &e->model.inputs->items[input];
    size_t bytes = ndp_input_bytes(e->model.inputs, input);
    void *table = calloc(bytes + 1, 1);
    NDP_CHECK_MEMORY(table, "for the table %s", in->name);
    in->fill(&e->model, in->number, table);
    ndp_status st = ndp_engine_copy(e, ndp_engine_input_at(e, input, 0, 0), table, bytes, true);
    free(table);
    return st;
}

/* Uploads the tables of pieces (ops/pieces.h) of all slices. */
static ndp_status fill_pieces(ndp_engine *e) {
    for (int i = 0; i < e->model.n_buffers; i++) {
        const ndp_owned *o = &e->program.owned[i];
        size_t bytes = ndp_table_bytes(&e->program, i);
        int64_t *table = o->n_pieces > 0 ? malloc(bytes) : NULL;
        if (o->n_pieces == 0)
            continue;
        NDP_CHECK_MEMORY(table, "for a table of %lld pieces", (long long)o->n_pieces);
        ndp_pieces_fill(&e->program.groups, &e->model.buffers[i].segments, o->shard.shards, o->shard.index, table);
        ndp_status st = ndp_engine_copy(e, ndp_engine_at(e, o->pieces), table, bytes, true);
        free(table);
        NDP_TRY(st);
    }
    return NDP_OK;
}

static size_t batches_bytes(const ndp_engine *e) { return (size_t)e->host.n_batches * e->program.batch_stride; }

static size_t loads_bytes(const ndp_engine *e) {
    return NDP_STEPS_PENDING * (size_t)ndp_program_loads(&e->program) * sizeof(double);
}

ndp_status ndp_engine_open_host(ndp_engine *e) {
    const ndp_device *d = e->opts.step.exec->device;
    void *steps, *constants, *loads;
    e->host.n_batches = d->host_memory ? 1 : (int64_t)NDP_STEPS_PENDING * e->opts.step.accumulation;
    NDP_TRY(d->queue_create(e->context, &e->host.results));
    NDP_TRY(d->memory_map(e->context, batches_bytes(e), NDP_MEMORY_HOST, &e->host.batches));
    NDP_TRY(d->memory_map(e->context, NDP_STEPS_PENDING * sizeof *e->host.steps, NDP_MEMORY_HOST, &steps));
    e->host.steps = steps;
    NDP_TRY(d->memory_map(e->context, (NDP_STEPS_PENDING + 1) * ndp_constants_bytes(&e->program), NDP_MEMORY_HOST,
                          &constants));
    e->host.constants = constants;
    if (loads_bytes(e) > 0) {
        NDP_TRY(d->memory_map(e->context, loads_bytes(e), NDP_MEMORY_HOST, &loads));
        e->host.loads = loads;
    }
    size_t mixtures = (size_t)ndp_engine_whole(e)->inputs->mixtures.n;
    if (ndp_program_has_counts(&e->program)) {
        e->host.later = calloc(NDP_STEPS_PENDING * mixtures, sizeof *e->host.later);
        NDP_CHECK_MEMORY(e->host.later, "for rounds of %zu mixtures", mixtures);
    }
    if (ndp_loss_rows_bytes(&e->program) > 0)
        NDP_TRY(d->memory_map(e->context, ndp_loss_rows_bytes(&e->program), NDP_MEMORY_HOST, &e->host.loss_rows));
    if (e->program.staging.bytes > 0)
        NDP_TRY(d->memory_map(e->context, e->program.staging.bytes, NDP_MEMORY_HOST, &e->host.staging));
    NDP_TRY(fill_pieces(e));
    for (int i = 0; i < e->model.inputs->n; i++)
        if (ndp_input_is_table(e->model.inputs->items[i].kind))
            NDP_TRY(fill_table(e, i));
    return NDP_OK;
}

/* Waits for steps whose results were not taken, since they use the host's memory. Their errors are dropped. After an
 * error the operations of the device's transport are ended, and so is the queue, unless one of its own kernels hangs.
 */
static void drop_pending(ndp_engine *e) {
    ndp_step_result unread;
    ndp_status st = NDP_OK;
    ndp_error_state cause = ndp_error_swap((ndp_error_state){0});
    while (st == NDP_OK && e->host.taken < e->host.submitted)
        st = ndp_engine_result(e, &unread);
    if (e->queue)
        st = ndp_engine_drain(e, e->queue);
    if (st != NDP_OK && e->queue && e->queues)
        e->abandoned = !ndp_transport_settles(e->queues, e->queue);
    ndp_error_forget();
    ndp_error_swap(cause);
    if (e->queues)
        e->abandoned |= !ndp_transport_quits(e->queues, st != NDP_OK);
}

void ndp_engine_close_host(ndp_engine *e) {
    const ndp_device *d = e->opts.step.exec->device;
    drop_pending(e);
    free(e->host.later);
    for (int i = 0; i < e->n_mapped && !e->abandoned; i++)
        d->memory_unmap(e->context, e->mapped[i].data, e->mapped[i].bytes, NDP_MEMORY_DEVICE);
    free(e->mapped);
    if (e->abandoned)
        return;
    if (e->host.results)
        d->queue_destroy(e->host.results);
    if (e->host.batches)
        d->memory_unmap(e->context, e->host.batches, batches_bytes(e), NDP_MEMORY_HOST);
    if (e->host.loads)
        d->memory_unmap(e->context, e->host.loads, loads_bytes(e), NDP_MEMORY_HOST);
    if (e->host.loss_rows)
        d->memory_unmap(e->context, e->host.loss_rows, ndp_loss_rows_bytes(&e->program), NDP_MEMORY_HOST);
    if (e->host.staging)
        d->memory_unmap(e->context, e->host.staging, e->program.staging.bytes, NDP_MEMORY_HOST);
    if (e->host.steps)
        d->memory_unmap(e->context, e->host.steps, NDP_STEPS_PENDING * sizeof *e->host.steps, NDP_MEMORY_HOST);
    if (e->host.constants)
        d->memory_unmap(e->context, e->host.constants, (NDP_STEPS_PENDING + 1) * ndp_constants_bytes(&e->program),
                        NDP_MEMORY_HOST);
}
