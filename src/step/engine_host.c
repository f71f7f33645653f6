/* The host's side of an engine. Its memory is the device's: what goes in or comes out is copied by the queue, in the
 * order of submission, from or to memory of the host. */
#include "model/facts.h"
#include "step/engine_parts.h"

#include <stdlib.h>
#include <string.h>

static ndp_status copy_rows(const ndp_engine *e, void *to, size_t to_pitch, const void *from, size_t from_pitch,
                            size_t width, size_t rows) {
    const ndp_device *d = e->opts.device;
    NDP_TRY(d->copy(e->queue, to, to_pitch, from, from_pitch, width, rows));
    return d->drain(e->queue);
}

ndp_status ndp_engine_copy(const ndp_engine *e, void *to, const void *from, size_t bytes, bool settle) {
    NDP_TRY(e->opts.device->copy(e->queue, to, bytes, from, bytes, bytes, 1));
    return settle ? e->opts.device->drain(e->queue) : NDP_OK;
}

/* ---- owned slices ---- */

static ndp_address slice_of(const ndp_engine *e, ndp_owned_kind kind, int buffer) {
    const ndp_owned *o = &e->program.owned[buffer];
    const ndp_address slices[] = {o->master, o->grad, o->state[0], o->state[1]};
    bool kept = kind == NDP_OWNED_MASTER || e->model.opts.mode == NDP_MODEL_TRAIN;
    return kept ? slices[kind] : (ndp_address){NDP_NONE, 0};
}

bool ndp_engine_has(const ndp_engine *e, ndp_owned_kind kind, int buffer) {
    return slice_of(e, kind, buffer).block != NDP_NONE;
}

ndp_dtype ndp_engine_type(const ndp_engine *e, ndp_owned_kind kind) {
    (void)kind;
    return e->model.opts.master;
}

const ndp_shard *ndp_engine_shard(const ndp_engine *e, int buffer) { return &e->program.owned[buffer].shard; }

ndp_status ndp_engine_read(const ndp_engine *e, ndp_owned_kind kind, int buffer, int64_t first, int64_t n,
                           int64_t stride, void *host) {
    size_t size = ndp_dtype_size(ndp_engine_type(e, kind));
    const char *from = (const char *)ndp_engine_at(e, slice_of(e, kind, buffer)) + (size_t)first * size;
    if (stride == 1)
        return ndp_engine_copy(e, host, from, (size_t)n * size, true);
    return copy_rows(e, host, size, from, (size_t)stride * size, size, (size_t)n);
}

ndp_status ndp_engine_write(ndp_engine *e, ndp_owned_kind kind, int buffer, int64_t first, int64_t n, int64_t stride,
                            const void *host) {
    size_t size = ndp_dtype_size(ndp_engine_type(e, kind));
    char *to = (char *)ndp_engine_at(e, slice_of(e, kind, buffer)) + (size_t)first * size;
    if (stride == 1)
        return ndp_engine_copy(e, to, host, (size_t)n * size, true);
    return copy_rows(e, to, (size_t)stride * size, host, size, size, (size_t)n);
}

/* One call of the op `copy` for each buffer whose ops read another type than the master's. */
ndp_status ndp_engine_publish(ndp_engine *e) {
    const ndp_model *m = &e->model;
    ndp_call_opts opts = {.exec = &e->exec, .queue = e->queue, .bases = e->addresses};
    for (int i = 0; i < m->n_buffers; i++) {
        const ndp_owned *o = &e->program.owned[i];
        int64_t rows = o->shard.slice / NDP_SEGMENT_ALIGN; /* rows are what threads share */
        ndp_operand io[] = {ndp_operand_at(o->master, rows, NDP_SEGMENT_ALIGN, m->opts.master),
                            {.base = NDP_NONE},
                            ndp_operand_at(o->send, rows, NDP_SEGMENT_ALIGN, m->opts.compute)};
        ndp_op_attr attr = {.type = m->opts.compute};
        ndp_call copy = {.op = &ndp_op_copy,
                         .kernel = e->exec.device->kernels[NDP_OP_copy],
                         .attr = attr,
                         .in = io,
                         .n_in = 2,
                         .out = io + 2,
                         .n_out = 1,
                         .scratch = NDP_NONE,
                         .pgrad = NDP_NONE};
        if (!o->shard.same)
            NDP_TRY(ndp_call_run(&copy, i, &opts));
    }
    return e->opts.device->drain(e->queue);
}

/* ---- batches ---- */

static ndp_batch batch_at(const ndp_model *m, void *data) {
    int32_t *first = data, *q_pos = first + 3 * m->tokens;
    return (ndp_batch){first, first + m->tokens,  first + 2 * m->tokens,
                       q_pos, q_pos + m->queries, q_pos + 2 * m->queries};
}

static void *device_batch(const ndp_engine *e, int micro_batch) {
    return (char *)ndp_engine_at(e, e->program.batch) + (size_t)micro_batch * e->program.batch_stride;
}

ndp_batch ndp_engine_device_batch(const ndp_engine *e, int micro_batch) {
    return batch_at(&e->model, device_batch(e, micro_batch));
}

ndp_status ndp_engine_batch(ndp_engine *e, ndp_batch *out) {
    NDP_TRY(e->opts.device->drain(e->queue));
    *out = batch_at(&e->model, e->host.batch);
    return NDP_OK;
}

ndp_status ndp_engine_upload(ndp_engine *e, int micro_batch) {
    return ndp_engine_copy(e, device_batch(e, micro_batch), e->host.batch, e->program.batch_stride, false);
}

ndp_status ndp_engine_download(ndp_engine *e, int micro_batch) {
    return ndp_engine_copy(e, e->host.batch, device_batch(e, micro_batch), e->program.batch_stride, true);
}

ndp_status ndp_engine_load(ndp_engine *e, int micro_batch, const ndp_micro_batch *whole) {
    ndp_rows rows = ndp_rows_cut(e->model.opts.rows, &e->opts.mesh, &e->opts.parallel);
    ndp_batch b;
    NDP_TRY(ndp_engine_batch(e, &b));
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
    return ndp_engine_upload(e, micro_batch);
}

/* ---- inference ---- */

ndp_status ndp_engine_map(ndp_engine *e, size_t bytes, void **out) {
    NDP_TRY(ndp_array_reserve(&e->mapped, &e->mapped_capacity, e->n_mapped + 1, sizeof *e->mapped));
    NDP_TRY(e->opts.device->memory_map(e->context, bytes, NDP_MEMORY_DEVICE, out));
    e->mapped[e->n_mapped].data = *out;
    e->mapped[e->n_mapped++].bytes = bytes;
    return NDP_OK;
}

void ndp_engine_cache(ndp_engine *e, int unit, void *k, void *v) {
    e->caches[2 * unit] = k;
    e->caches[2 * unit + 1] = v;
}

ndp_status ndp_engine_cache_row(ndp_engine *e, int32_t row) {
    return ndp_engine_copy(e, e->cache_row, &row, sizeof row, true);
}

/* The last run of the program makes them. */
ndp_status ndp_engine_logits(const ndp_engine *e, int64_t row, void *host) {
    size_t bytes = (size_t)e->model.facts.vocab * ndp_dtype_size(e->model.opts.compute);
    for (int i = e->program.n - 1; i >= 0; i--) {
        const ndp_instr *in = &e->program.instrs[i];
        if (in->code == NDP_DO_RUN)
            return ndp_engine_copy(e, host, (char *)e->addresses[in->bases[NDP_BASE_OUTPUT]] + (size_t)row * bytes,
                                   bytes, true);
    }
    return NDP_FAIL(NDP_EBUG, "logits of a program without runs");
}

/* ---- what the host has ---- */

/* Angles are made by the host and copied once. */
static ndp_status fill_rope(ndp_engine *e) {
    const ndp_model *m = &e->model;
    ndp_dtype type = m->opts.compute == NDP_F64 ? NDP_F64 : NDP_F32;
    size_t bytes = (size_t)ndp_rope_elements(&m->facts, m->opts.positions, m->facts.n_ropes) * ndp_dtype_size(type);
    void *tables = malloc(bytes + 1);
    if (!tables)
        return NDP_FAIL(NDP_ENOMEM, "no memory for the angles of positions");
    ndp_rope_tables(&m->facts, m->opts.positions, type, tables);
    ndp_status st = ndp_engine_copy(e, ndp_engine_at(e, e->program.rope), tables, bytes, true);
    free(tables);
    return st;
}

ndp_status ndp_engine_open_host(ndp_engine *e) {
    const ndp_device *d = e->opts.device;
    void *results;
    NDP_TRY(d->memory_map(e->context, e->program.batch_stride, NDP_MEMORY_HOST, &e->host.batch));
    NDP_TRY(d->memory_map(e->context, NDP_STEPS_PENDING * sizeof(ndp_scalars), NDP_MEMORY_HOST, &results));
    e->host.results = results;
    NDP_TRY(ndp_engine_map(e, sizeof(int32_t), &e->cache_row));
    return fill_rope(e);
}

void ndp_engine_close_host(ndp_engine *e) {
    const ndp_device *d = e->opts.device;
    for (int i = 0; i < e->n_mapped; i++)
        d->memory_unmap(e->context, e->mapped[i].data, e->mapped[i].bytes, NDP_MEMORY_DEVICE);
    free(e->mapped);
    if (e->host.batch)
        d->memory_unmap(e->context, e->host.batch, e->program.batch_stride, NDP_MEMORY_HOST);
    if (e->host.results)
        d->memory_unmap(e->context, e->host.results, NDP_STEPS_PENDING * sizeof(ndp_scalars), NDP_MEMORY_HOST);
}
