/* The executor: runs the step program, and the unit programs that it calls. */
#include "step/engine_parts.h"

#include "base/clock.h"
#include <math.h>
#include <string.h>

static ndp_scalars *scalars(const ndp_engine *e) { return ndp_engine_at(e, e->program.scalars); }

static void do_count(ndp_engine *e) {
    const ndp_inputs *inputs = e->model.inputs;
    int64_t valid = 0;
    int input = 0;
    while (input < inputs->n && inputs->items[input].kind != NDP_INPUT_LABELS)
        input++;
    for (int m = 0; input < inputs->n && m < e->opts.accumulation; m++) {
        const int32_t *labels = ndp_engine_input_at(e, input, 0, m);
        for (int64_t t = 0; t < inputs->rows[inputs->items[input].extent]; t++)
            valid += labels[t] >= 0;
    }
    *scalars(e) = (ndp_scalars){.valid = valid};
}

static ndp_status begin(ndp_comm *comm, const ndp_call *c, const ndp_op_call *operands, ndp_work *work) {
    const ndp_view *in = &operands->in[0];
    void *out = operands->out[0].data;
    int64_t count = ndp_call_elements(c), bytes = count * (int64_t)ndp_dtype_size(in->dtype);
    switch (c->op->collective) {
    case NDP_ALL_GATHER:
        return ndp_all_gather_begin(comm, in->data, out, count, in->dtype, work);
    case NDP_REDUCE_SCATTER:
        return ndp_reduce_scatter_begin(comm, in->data, out, count, in->dtype, c->attr.accumulate, work);
    case NDP_ALL_REDUCE:
        return ndp_all_reduce_begin(comm, out, count, in->dtype, NDP_SUM, work);
    case NDP_ALL_TO_ALL:
        return ndp_all_to_all_begin(comm, in->data, out, bytes, work);
    default:
        return ndp_shift_begin(comm, in->data, out, bytes, work);
    }
}

/* A collective, of the program (`index` NDP_NONE) or of the unit that runs. */
static ndp_status collective(void *user, int index, const ndp_call *c, const ndp_op_call *operands) {
    ndp_engine *e = user;
    const ndp_instr *in = &e->program.instrs[e->at];
    int first = index == NDP_NONE ? 0 : e->program.n, own = index == NDP_NONE ? e->at : index;
    double start = ndp_now();
    ndp_comm_at(e->comms[c->channel], in->what, e->at, index);
    if (c->kind == NDP_CALL_BEGIN) {
        e->begun[first + own] = start;
        NDP_TRY(begin(e->comms[c->channel], c, operands, &e->works[first + own]));
        e->profile.begin += ndp_now() - start;
        return NDP_OK;
    }
    NDP_TRY(ndp_wait(&e->works[first + c->partner]));
    double now = ndp_now();
    e->profile.wait += now - start;
    e->profile.under_way += now - e->begun[first + c->partner];
    if (index != NDP_NONE)
        e->profile.in_units += now - start;
    return NDP_OK;
}

static ndp_call_opts call_opts(ndp_engine *e, void *const *bases) {
    return (ndp_call_opts){.exec = &e->exec,
                           .queue = e->queue,
                           .bases = bases,
                           .op_seconds = e->profile_ops ? e->profile.op : NULL,
                           .collective = collective,
                           .user = e};
}

static ndp_status do_run(ndp_engine *e, const ndp_instr *in) {
    void *bases[NDP_BASES] = {0};
    for (int i = 0; i < e->model.inputs->n; i++)
        bases[NDP_BASE_DATA + i] = ndp_engine_input_at(e, i, in->unit, in->micro_batch);
    for (int i = 0; i < NDP_BASE_DATA; i++)
        bases[i] = in->bases[i] == NDP_NONE ? NULL : e->addresses[in->bases[i]];
    ndp_call_opts opts = call_opts(e, bases);
    opts.accumulate = in->accumulate;
    return ndp_list_run(ndp_program_list(&e->program, in), &opts);
}

static void do_norm(ndp_engine *e) {
    const ndp_model *m = &e->model;
    double sum = 0;
    for (int i = 0; i < m->n_buffers; i++) {
        const ndp_shard *s = ndp_engine_shard(e, i);
        const char *grad = ndp_engine_at(e, e->program.owned[i].grad);
        ndp_piece piece;
        if (!m->buffers[i].trainable)
            continue;
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
    const ndp_optimizer_opts *opt = &e->opts.optimizer;
    const ndp_shard *s = ndp_engine_shard(e, buffer);
    size_t size = ndp_dtype_size(m->opts.master);
    char *slices[4];
    const ndp_owned *o = &e->program.owned[buffer];
    const ndp_address of[] = {o->master, o->grad, o->state[0], o->state[1]};
    for (int k = 0; k < 4; k++)
        slices[k] = ndp_engine_at(e, of[k]);
    uint16_t *copy = s->same ? NULL : ndp_engine_at(e, e->program.owned[buffer].send);
    double constants[NDP_OPTIMIZER_CONSTANTS] = {0};
    ndp_optimizers[opt->name]->constants(opt, lr, update, constants);
    ndp_piece piece;
    for (int cursor = 0; ndp_segments_piece(&m->buffers[buffer].segments, s->shards, s->index, &cursor, &piece);) {
        size_t skip = (size_t)piece.slice_first * size;
        ndp_optimizer_update(opt->name, &(ndp_update){.type = m->opts.master,
                                                      .weight = slices[0] + skip,
                                                      .grad = slices[1] + skip,
                                                      .state = {slices[2] ? slices[2] + skip : NULL,
                                                                slices[3] ? slices[3] + skip : NULL},
                                                      .copy = copy ? copy + piece.slice_first : NULL,
                                                      .n = piece.count,
                                                      .constants = constants,
                                                      .decays = piece.segment->decay,
                                                      .grad_scale = scalars(e)->clip,
                                                      .threads = e->opts.threads});
    }
}

static ndp_status execute(ndp_engine *e, int index, double lr, int64_t update, bool update_weights) {
    const ndp_instr *in = &e->program.instrs[index];
    ndp_scalars *s = scalars(e);
    ndp_call_opts opts;
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
    case NDP_DO_CALL:
        opts = call_opts(e, e->addresses);
        return ndp_call_run(&in->call, NDP_NONE, &opts);
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

/* ---- steps ---- */

static void add_time(ndp_profile *p, const ndp_instr *in, double seconds) {
    if (in->code == NDP_DO_RUN)
        p->phase[in->phase] += seconds;
    else if (in->code == NDP_DO_UPDATE)
        p->update += seconds;
    else if (in->code != NDP_DO_CALL)
        p->norm += seconds;
}

ndp_status ndp_engine_submit(ndp_engine *e, const ndp_step_input *in) {
    double start = ndp_now(), last = start;
    if (e->host.submitted - e->host.taken == NDP_STEPS_PENDING)
        return NDP_FAIL(NDP_EBUG, "%d steps wait for their results to be taken", NDP_STEPS_PENDING);
    for (int i = 0; i < e->program.n; i++) {
        NDP_TRY(execute(e, i, in->lr, in->update, in->update_weights));
        double now = ndp_now();
        add_time(&e->profile, &e->program.instrs[i], now - last);
        last = now;
    }
    ndp_scalars *result = &e->host.results[e->host.submitted++ % NDP_STEPS_PENDING];
    NDP_TRY(ndp_engine_copy(e, result, scalars(e), sizeof *result, false));
    e->profile.total += last - start;
    e->profile.steps++;
    return NDP_OK;
}

ndp_status ndp_engine_result(ndp_engine *e, ndp_step_result *out) {
    if (e->host.taken == e->host.submitted)
        return NDP_FAIL(NDP_EBUG, "no step waits for its result to be taken");
    NDP_TRY(e->opts.device->drain(e->queue));
    const ndp_scalars *s = &e->host.results[e->host.taken++ % NDP_STEPS_PENDING];
    *out = (ndp_step_result){.loss = s->loss * s->scale, .grad_norm = s->norm, .tokens = s->valid};
    return NDP_OK;
}

ndp_status ndp_engine_step(ndp_engine *e, double lr, int64_t update, bool update_weights, ndp_step_result *out) {
    NDP_TRY(ndp_engine_submit(e, &(ndp_step_input){lr, update, update_weights}));
    return ndp_engine_result(e, out);
}

const ndp_profile *ndp_engine_profile(const ndp_engine *e) { return &e->profile; }

void ndp_engine_profile_reset(ndp_engine *e, bool by_op) {
    e->profile = (ndp_profile){0};
    e->profile_ops = by_op;
}
