/* Building an engine. In this order, since each step needs the one before:
 *
 *     model of this rank -> unit programs -> step program -> device and queue -> communicators -> memory -> agreement
 *
 * Everything up to the step program also happens in a dry run; the rest is collective and needs a device that executes.
 * execute.c runs the program; engine_host.c moves data between the host and the device. */
#include "step/engine_parts.h"

#include <stdlib.h>

/* ---- building ---- */

static ndp_status lower_units(ndp_engine *e) {
    ndp_lower_opts opts = {.exec = e->opts.step.exec, .selective = e->opts.step.recompute == NDP_RECOMPUTE_SELECTIVE};
    for (int g = 0; g < e->model.n_graphs; g++)
        NDP_TRY(ndp_lower(&e->model.graphs[g], &opts, &e->units[g]));
    return NDP_OK;
}

static ndp_status build_program(ndp_engine *e) {
    ndp_schedule own = {0};
    ndp_program_opts opts = {.step = e->opts.step,
                             .model = &e->model,
                             .whole = e->opts.model,
                             .units = e->units,
                             .weights_of = e->opts.weights_of ? &e->opts.weights_of->program : NULL};
    if (e->opts.pipeline) {
        NDP_TRY(ndp_schedule_of_rank(e->opts.pipeline, e->opts.step.mesh.coord[NDP_PP], &e->model, &own));
        opts.step.schedule = &own;
    }
    ndp_status st = ndp_program_build(&opts, &e->program);
    ndp_schedule_release(&own);
    return st;
}

/* Tells the channel's communicator which messages come, by numbers that stand for their tags and sizes in order. */
static ndp_status connect_messages(ndp_engine *e, int channel) {
    int n = ndp_comm_size(e->comms[channel]);
    uint64_t *orders[2] = {calloc((size_t)n, sizeof **orders), calloc((size_t)n, sizeof **orders)};
    ndp_comm_event m;
    ndp_status st = NDP_MEMORY(orders[0] && orders[1], "for %d ranks", n);
    for (ndp_comm_event_cursor c = NDP_COMM_EVENTS(NDP_ALL_ITERATIONS);
         st == NDP_OK && ndp_program_comm_event(&e->program, &c, &m);)
        if (m.begin && ndp_comm_event_channel(&m) == channel) {
            uint64_t *order = &orders[m.call->op->collective == NDP_RECV][m.call->attr.peer];
            *order = (*order + (uint64_t)m.tag + 1) * 0x9E3779B97F4A7C15u + (uint64_t)m.bytes;
        }
    if (st == NDP_OK)
        st = ndp_comm_connect(e->comms[channel], orders[0], orders[1]);
    free(orders[0]);
    free(orders[1]);
    return st;
}

/* Channels that are never under way at once share a queue of the device. */
static void share_queues(ndp_engine *e) {
    int queue_of[NDP_CHANNELS], n = ndp_program_collective_queues(&e->program, queue_of);
    for (int i = 0; n > 0 && i < NDP_CHANNELS; i++)
        for (int k = 0; k < i && queue_of[i] != NDP_NONE; k++)
            if (queue_of[k] == queue_of[i]) {
                ndp_comm_share_queue(e->comms[i], e->comms[k]);
                break;
            }
}

/* A communicator for each channel that the program names. In the channels' order, which is the same on all ranks:
 * creation is collective, and the programs of two ranks name groups in different orders. A group whose ranks have
 * programs without it has no communicator. Not all ranks of pp need have messages (frozen stages send no gradients), so
 * those channels do not depend on the program. */
static ndp_status connect(ndp_engine *e) {
    ndp_transport *t = e->opts.transport, *tensors = e->queues ? e->queues : t;
    ndp_group all = {0, 1, ndp_transport_world(t), ndp_transport_rank(t)};
    bool stages = e->opts.step.stages.n > 1;
    bool named[NDP_CHANNELS] = {
        [NDP_CHANNEL_FORWARD] = stages, [NDP_CHANNEL_BACKWARD] = stages && e->model.opts.mode == NDP_MODEL_TRAIN};
    ndp_comm_event m;
    for (int kind = 0; kind < NDP_GROUPS; kind++)
        named[NDP_CHANNEL_GATHERS + kind] = e->program.bytes[NDP_REGION_SHARED + kind] > 0;
    for (ndp_comm_event_cursor c = NDP_COMM_EVENTS(NDP_FIRST_ITERATIONS(1));
         ndp_program_comm_event(&e->program, &c, &m);)
        named[ndp_comm_event_channel(&m)] = true;
    NDP_TRY(ndp_comm_create(t, all, "world", &e->world));
    for (int i = 0; i < NDP_CHANNELS; i++) {
        ndp_group_kind group = ndp_channel_group(i);
        if (named[i])
            NDP_TRY(
                ndp_comm_create(tensors, ndp_mesh_group(&e->opts.step.mesh, group), ndp_channel_name(i), &e->comms[i]));
        if (named[i] && i >= NDP_CHANNEL_FORWARD)
            NDP_TRY(connect_messages(e, i));
    }
    share_queues(e);
    return NDP_OK;
}

/* Checks that the engine whose weights are read has the same buffers and types. */
static ndp_status check_lender(const ndp_engine *e) {
    const ndp_engine *from = e->opts.weights_of;
    const ndp_model *a = &e->model, *b = from ? &from->model : NULL;
    bool same = !from || (a->n_buffers == b->n_buffers && a->opts.compute == b->opts.compute &&
                          a->opts.master == b->opts.master && a->opts.weights == b->opts.weights &&
                          a->opts.mode != NDP_MODEL_TRAIN);
    for (int i = 0; from && same && i < a->n_buffers; i++)
        same = a->buffers[i].segments.elements == b->buffers[i].segments.elements;
    return same ? NDP_OK
                : NDP_FAIL(
                      NDP_EBUG,
                      "weights of another engine: one that trains, or has other tables or types, cannot read those");
}

/* Maps the memory that groups of owners share. *refused: on some rank a group cannot. */
static ndp_status share_memory(ndp_engine *e, bool *refused) {
    int64_t word = 0;
    ndp_work w;
    for (int kind = 0; kind < NDP_GROUPS; kind++) {
        size_t shared = e->program.bytes[NDP_REGION_SHARED + kind];
        ndp_status st = NDP_OK;
        if (shared > 0)
            st = ndp_window_share(e->comms[NDP_CHANNEL_GATHERS + kind], shared, &e->windows[NDP_REGION_SHARED + kind]);
        word |= st == NDP_ENOTSUP;
        if (st != NDP_ENOTSUP)
            NDP_TRY(st);
    }
    NDP_TRY(ndp_all_reduce_begin(e->world, &word, 1, NDP_I64, NDP_MAX, &w));
    NDP_TRY(ndp_wait(&w));
    *refused = word != 0;
    return NDP_OK;
}

/* Takes the planned memory. Where a group cannot share memory, all ranks plan the program again with real gathers:
 * a group whose ranks did not agree would wait forever. */
static ndp_status take_memory(ndp_engine *e) {
    bool refused;
    NDP_TRY(share_memory(e, &refused));
    if (refused) {
        for (int kind = 0; kind < NDP_GROUPS; kind++) {
            ndp_window_destroy(e->windows[NDP_REGION_SHARED + kind]);
            e->windows[NDP_REGION_SHARED + kind] = NULL;
        }
        ndp_program_release(&e->program);
        e->opts.step.node_ranks = 1;
        NDP_TRY(build_program(e));
    }
    for (int r = NDP_REGION_LENT_ARENA; e->opts.weights_of && r < NDP_REGIONS; r++)
        e->windows[r] = e->opts.weights_of->windows[r - NDP_REGION_LENT_ARENA];
    e->arena_bytes = e->program.bytes[NDP_REGION_ARENA];
    NDP_TRY(e->opts.step.exec->device->memory_map(e->context, e->arena_bytes, NDP_MEMORY_DEVICE, &e->arena));
    return ndp_window_register(e->world, e->arena, e->arena_bytes, &e->windows[NDP_REGION_ARENA]);
}

static int longest_list(const ndp_engine *e) {
    int most = 0;
    for (int g = 0; g < e->model.n_graphs; g++)
        for (int phase = 0; phase < NDP_PHASES; phase++)
            most = e->units[g].lists[phase].n > most ? e->units[g].lists[phase].n : most;
    return most;
}

/* Programs are compared in the host's memory. */
static ndp_status agree_on(const ndp_engine *e, int channel) {
    ndp_group group = ndp_mesh_group(&e->opts.step.mesh, ndp_channel_group(channel));
    ndp_comm *c = e->comms[channel];
    if (!e->queues)
        return ndp_program_agree(&e->program, channel, c);
    NDP_TRY(ndp_comm_create(e->opts.transport, group, ndp_channel_name(channel), &c));
    ndp_status st = ndp_program_agree(&e->program, channel, c);
    ndp_comm_destroy(c);
    return st;
}

static ndp_status agree(const ndp_engine *e) {
    for (int channel = 0; channel < NDP_CHANNELS; channel++)
        if (e->comms[channel])
            NDP_TRY(agree_on(e, channel));
    return NDP_OK;
}

/* A device on host memory maps its arena from the transport's source, so that peers on the node access it in place. */
static ndp_status open_device(ndp_engine *e) {
    const ndp_device *d = e->opts.step.exec->device;
    e->source = ndp_transport_memory(e->opts.transport);
    ndp_device_opts opts = {.local_rank = ndp_transport_host_rank(e->opts.transport),
                            .node_ranks = ndp_transport_host_ranks(e->opts.transport),
                            .share = e->opts.step.exec->share,
                            .source = &e->source};
    NDP_TRY(d->open(d, &opts, &e->context));
    NDP_TRY(d->queue_create(e->context, &e->queue));
    if (d->host_memory)
        return NDP_OK;
    return ndp_exec_stages(e->opts.step.exec) ? ndp_transport_staged(e->opts.transport, d, e->context, &e->queues)
                                              : ndp_transport_on_device(e->opts.transport, d, e->context, &e->queues);
}

static ndp_status ready(ndp_engine *e) {
    NDP_TRY(open_device(e));
    NDP_TRY(connect(e));
    NDP_TRY(take_memory(e));
    NDP_TRY(agree(e));
    size_t most = (size_t)(e->program.n_works + longest_list(e)) + 1;
    e->works = calloc(most, sizeof *e->works);
    e->begun = calloc(most, sizeof *e->begun);
    e->addresses = calloc((size_t)e->program.n_blocks + 1, sizeof *e->addresses);
    e->lent = calloc((size_t)e->model.n_units * NDP_MAX_INPUTS, sizeof *e->lent);
    size_t ep = (size_t)e->opts.step.mesh.layout.size[NDP_EP];
    e->rows = calloc(NDP_MOST_COLLECTIVES * ep * ep, sizeof *e->rows);
    NDP_CHECK_MEMORY(e->works && e->begun && e->addresses && e->lent && e->rows, "for the engine");
    for (int i = 0; i < e->program.n_blocks; i++)
        e->addresses[i] = ndp_engine_at(e, (ndp_address){i, 0});
    return ndp_engine_open_host(e);
}

/* A rank that cannot become ready ends the run: its peers are in operations of their own engines. */
static ndp_status ready_or_fail(ndp_engine *e) {
    ndp_status st = ready(e);
    if (st != NDP_OK)
        ndp_transport_fail(e->opts.transport, ndp_error_message());
    return st;
}

/* How many ranks may share memory: none on a device whose memory is not the host's, where each has its own. */
static int node_ranks_of(const ndp_engine_opts *o) {
    if (!o->step.exec->device->host_memory)
        return 1;
    return o->step.node_ranks ? o->step.node_ranks : o->transport ? ndp_transport_node_ranks(o->transport) : 1;
}

ndp_status ndp_engine_create(const ndp_engine_opts *opts, ndp_engine **out) {
    ndp_engine *e = calloc(1, sizeof *e);
    NDP_CHECK_MEMORY(e, "for the engine");
    e->opts = *opts;
    e->opts.step.node_ranks = node_ranks_of(opts);
    e->opts.step.parallel.align = ndp_update_align(&opts->step.optimizer);
    ndp_status st =
        ndp_parallel_apply(opts->model, &e->opts.step.mesh, &e->opts.step.parallel, &opts->step.stages, &e->model);
    if (st == NDP_OK)
        st = lower_units(e);
    if (st == NDP_OK)
        st = check_lender(e);
    if (st == NDP_OK)
        st = build_program(e);
    if (st == NDP_OK && opts->transport && opts->step.exec->device->executes)
        st = ready_or_fail(e);
    if (st != NDP_OK) {
        ndp_engine_destroy(e);
        return st;
    }
    *out = e;
    return NDP_OK;
}

ndp_engine *ndp_engine_share(ndp_engine *e) {
    e->others++;
    return e;
}

void ndp_engine_destroy(ndp_engine *e) {
    if (!e || e->others-- > 0)
        return;
    ndp_engine_close_host(e);
    ndp_op_times_release(&e->op_times);
    if (e->queue && !e->abandoned)
        e->opts.step.exec->device->queue_destroy(e->queue);
    for (int i = 0; i < NDP_REGIONS; i++)
        if (!ndp_region_is_lent((ndp_region)i))
            ndp_window_destroy(e->windows[i]);
    if (e->arena && !e->abandoned)
        e->opts.step.exec->device->memory_unmap(e->context, e->arena, e->arena_bytes, NDP_MEMORY_DEVICE);
    for (int i = NDP_CHANNELS - 1; i >= 0; i--) /* those that share a queue before its owner */
        ndp_comm_destroy(e->comms[i]);
    ndp_comm_destroy(e->world);
    if (!e->abandoned)
        ndp_transport_destroy(e->queues);
    if (e->context && !e->abandoned)
        e->opts.step.exec->device->close(e->context);
    ndp_program_release(&e->program);
    for (int i = 0; i < NDP_COUNT(e->units); i++)
        ndp_unit_program_release(&e->units[i]);
    ndp_model_release(&e->model);
    ndp_engine_release_record(e);
    free(e->works);
    free(e->addresses);
    free(e->begun);
    free(e->rows);
    free(e->lent);
    free(e);
}

void ndp_engine_device_name(const ndp_engine *e, char text[NDP_DEVICE_NAME]) {
    e->opts.step.exec->device->full_name(e->context, text);
}

double ndp_engine_energy(ndp_engine *e) {
    if (!e->counts_energy)
        ndp_energy_open(&e->energy, e->opts.step.exec->device, e->context, ndp_transport_host_rank(e->opts.transport),
                        NULL);
    e->counts_energy = true;
    return ndp_energy_read(&e->energy);
}

const ndp_program *ndp_engine_program(const ndp_engine *e) { return &e->program; }

const ndp_model *ndp_engine_model(const ndp_engine *e) { return &e->model; }

void ndp_engine_passes(const ndp_engine *e, ndp_pass_trace *out) {
    *out = (ndp_pass_trace){0};
    ndp_pass_add(out, &e->model.passes);
    for (int g = 0; g < e->model.n_graphs; g++)
        ndp_pass_add(out, &e->units[g].passes);
    ndp_pass_add(out, &e->program.passes);
}

const ndp_model *ndp_engine_whole(const ndp_engine *e) { return e->opts.model; }
