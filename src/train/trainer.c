/* One rank of a run: how it is set up, and its steps. Everything is planned and compared with the available memory
 * before the first large allocation; a step loads the batches, runs the engine and allocates nothing. */
#include "train/trainer.h"

#include "base/clock.h"
#include "base/cpu.h"
#include "base/json.h"
#include "base/log.h"
#include "checkpoint/agree.h"
#include "host/host.h"
#include "job/run_model.h"
#include "plan/job_memory.h"
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- engine ---- */

static ndp_status build_engine(ndp_trainer *t) {
    const ndp_config *c = t->job.config;
    NDP_TRY(ndp_model_build(&t->job.facts, &t->job.model, &t->model));
    ndp_engine_opts o;
    NDP_TRY(ndp_job_engine(&t->job, ndp_transport_rank(t->transport), &t->exec, &o));
    o.model = &t->model;
    o.transport = t->transport;
    NDP_TRY(ndp_engine_create(&o, &t->engine));
    return c->model.init == NDP_INIT_RANDOM ? ndp_weights_draw(t->engine, (uint64_t)c->train.seed)
                                            : ndp_weights_load(t->engine, t->job.model_folder);
}

/* Allocates room for a micro-batch before the axes cut it. */
static ndp_status take_batch(ndp_trainer *t) {
    size_t rows = (size_t)t->job.model.rows;
    int32_t *arrays = calloc(4 * rows, sizeof *arrays);
    t->rows = calloc((size_t)t->shape.micro, sizeof *t->rows);
    t->arrays = arrays;
    t->whole = ndp_micro_batch_of(arrays, t->job.model.rows);
    return arrays && t->rows ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "no memory for a micro-batch of %zu tokens", rows);
}

static ndp_status build_engines(ndp_trainer *t) {
    NDP_TRY(take_batch(t));
    if (!t->forward_only)
        NDP_TRY(build_engine(t));
    return t->data.held ? ndp_trainer_build_score(t) : NDP_OK;
}

/* Computes the bytes of this host's ranks from programs that are built for that and thrown away. */
static ndp_status plan_memory(ndp_trainer *t) {
    return ndp_job_node_memory(&t->job, ndp_transport_rank(t->transport), ndp_transport_node_ranks(t->transport),
                               t->exec.split_place, t->forward_only, &t->planned);
}

/* Every rank checks the checkpoint that rank 0 has found. Whether it ties head and embedding is read from it, since the
 * folder that the run started from may have no weights any more. */
static ndp_status open_weights(ndp_trainer *t, const ndp_trainer_opts *o) {
    bool first = ndp_comm_rank(t->world) == 0;
    int64_t step = o->step;
    if (!o->weights_of)
        return ndp_agree(t->world, ndp_job_find_weights(&t->job));
    for (int turn = 0; turn < 2; turn++) {
        ndp_status own =
            first == (turn == 0) ? ndp_run_model_open(o->weights_of, step, t->exec.threads, &t->weights_of) : NDP_OK;
        NDP_TRY(ndp_agree(t->world, own));
        step = first ? t->weights_of->step : step;
        NDP_TRY(ndp_share_now(t->world, &step, sizeof step, 0));
    }
    t->job.facts.tied = t->weights_of->job.facts.tied;
    t->job.facts.own_head = t->weights_of->job.facts.own_head;
    return NDP_OK;
}

static ndp_status open_all(ndp_trainer *t, const ndp_trainer_opts *o) {
    ndp_group all = {0, 1, ndp_transport_world(t->transport), ndp_transport_rank(t->transport)};
    NDP_TRY(ndp_comm_create(t->transport, all, "world", &t->world));
    if (ndp_transport_note(t->transport))
        ndp_warn(&t->log, "%s", ndp_transport_note(t->transport));
    t->exec.threads = ndp_job_threads(&t->job, ndp_transport_node_ranks(t->transport));
    omp_set_num_threads(t->exec.threads);
    NDP_TRY(ndp_bind_launched_rank(t->exec.threads));
    NDP_TRY(open_weights(t, o));
    NDP_TRY(ndp_agree(t->world, plan_memory(t)));
    NDP_TRY(ndp_agree(t->world, ndp_trainer_open_data(t)));
    NDP_TRY(ndp_trainer_check_memory(t)); /* again: the tables of rows are allocated now */
    return ndp_agree(t->world, build_engines(t));
}

ndp_status ndp_trainer_create(const ndp_config *c, ndp_world *w, ndp_trainer **out) {
    return ndp_trainer_open(c, w, &(ndp_trainer_opts){0}, out);
}

ndp_status ndp_trainer_open(const ndp_config *c, ndp_world *w, const ndp_trainer_opts *o, ndp_trainer **out) {
    ndp_trainer *t = calloc(1, sizeof *t);
    if (!t)
        return NDP_FAIL(NDP_ENOMEM, "no memory for a trainer");
    t->opts = o->run;
    t->forward_only = o->forward_only;
    t->transport = w;
    t->exec = ndp_exec_of(o->device, 0, o->split_place);
    t->exec.share = c->train.share_gpu;
    t->exec.tf32 = c->train.matmul == NDP_MATMUL_TF32;
    t->log = (ndp_log){NDP_LOG_INFO, ndp_transport_rank(t->transport)};
    ndp_status st = o->device ? NDP_OK : ndp_device_find(ndp_device_names[c->train.device], &t->exec.device);
    if (st == NDP_OK)
        st = ndp_job_init(c, ndp_transport_world(t->transport), &t->job);
    if (st == NDP_OK)
        st = open_all(t, o);
    if (st != NDP_OK) {
        ndp_trail_add(__FILE__, __LINE__);
        ndp_trainer_destroy(t);
        return st;
    }
    *out = t;
    return NDP_OK;
}

void ndp_trainer_destroy(ndp_trainer *t) {
    if (!t)
        return;
    ndp_engine_destroy(t->score);
    ndp_model_release(&t->score_model);
    ndp_run_model_close(t->weights_of);
    ndp_engine_destroy(t->engine);
    ndp_model_release(&t->model);
    ndp_job_data_close(&t->data);
    ndp_peak_destroy(t->peak.own);
    json_object_put(t->accepted);
    ndp_comm_destroy(t->world);
    ndp_job_release(&t->job);
    free(t->arrays);
    free(t->rows);
    free(t);
}

/* ---- steps ---- */

static int data_rank(const ndp_trainer *t) {
    return ndp_mesh_group(&ndp_engine_program(t->engine)->opts.step.mesh, NDP_GROUP_DATA).rank;
}

void ndp_trainer_draw_rows(const ndp_trainer *t, int m, int64_t *rows) {
    for (int64_t j = 0; j < t->shape.micro; j++)
        rows[j] = ndp_sampler_row(&t->data.sampler, t->samples + ndp_sample_index(&t->shape, 0, m, data_rank(t), j));
}

static ndp_status load_batches(const ndp_trainer *t) {
    for (int m = 0; m < t->job.batch.accumulation; m++) {
        ndp_trainer_draw_rows(t, m, t->rows);
        NDP_TRY(ndp_trainer_load_rows(t, t->data.dataset, t->rows));
        NDP_TRY(ndp_engine_load(t->engine, m, &t->whole));
    }
    return NDP_OK;
}

double ndp_trainer_lr(const ndp_config *c, int steps, int64_t update) {
    int warmup = c->schedule.warmup_ratio > 0 ? (int)(c->schedule.warmup_ratio * steps) : c->schedule.warmup_steps;
    ndp_lr_schedule s = {c->schedule.name, c->optimizer.lr, c->schedule.min_lr_ratio, warmup, steps};
    return ndp_lr_of(&s, update);
}

/* Peak resident memory of this process, bytes. */
static int64_t peak_memory(void) {
    long long kib = 0;
    char line[256];
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "VmHWM: %lld", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return kib * 1024;
}

ndp_status ndp_trainer_load_next(ndp_trainer *t) {
    t->loading = ndp_now();
    return load_batches(t);
}

ndp_status ndp_trainer_submit_loaded(ndp_trainer *t) {
    double lr = ndp_trainer_lr(t->job.config, t->data.steps, t->updates);
    ndp_status st = ndp_engine_submit(t->engine, &(ndp_step_input){lr, t->updates, true});
    t->apart |= st != NDP_OK;
    NDP_TRY(st);
    t->pending.start[t->pending.n++] = t->loading;
    t->updates++;
    t->samples += t->shape.global;
    return NDP_OK;
}

ndp_status ndp_trainer_submit(ndp_trainer *t) {
    NDP_TRY(ndp_trainer_load_next(t));
    return ndp_trainer_submit_loaded(t);
}

/* A step that was submitted early takes its time from the result before it. */
ndp_status ndp_trainer_result(ndp_trainer *t, ndp_metrics *out) {
    ndp_step_result r;
    int64_t update = t->updates - t->pending.n;
    ndp_status st = ndp_engine_result(t->engine, &r);
    t->apart |= st != NDP_OK;
    NDP_TRY(st);
    double now = ndp_now(), seconds = now - fmax(t->pending.start[0], t->pending.last);
    double work = 6.0 * (double)ndp_facts_parameters(&t->job.facts) * (double)r.tokens;
    t->pending.last = now;
    memmove(t->pending.start, t->pending.start + 1, (size_t)--t->pending.n * sizeof *t->pending.start);
    *out = (ndp_metrics){.step = update + 1,
                         .loss = r.loss,
                         .grad_norm = r.grad_norm,
                         .lr = ndp_trainer_lr(t->job.config, t->data.steps, update),
                         .tokens = r.tokens,
                         .tokens_per_second = (double)r.tokens / seconds,
                         .step_seconds = seconds,
                         .mfu = t->peak.flops > 0 ? work / seconds / t->peak.flops : 0.0,
                         .peak_flops = t->peak.flops,
                         .peak_memory_bytes = peak_memory(),
                         .eval_loss = NAN};
    t->newest = *out;
    return NDP_OK;
}

ndp_status ndp_trainer_count_back(ndp_trainer *t, int64_t step, bool *whole) {
    *whole = true;
    while (t->pending.n > 0) {
        ndp_metrics later;
        NDP_TRY(ndp_trainer_result(t, &later));
        *whole &= !(isfinite(later.loss) && isfinite(later.grad_norm));
    }
    t->samples -= (t->updates - step) * t->shape.global;
    t->updates = step;
    return NDP_OK;
}

ndp_status ndp_trainer_step(ndp_trainer *t, ndp_metrics *out) {
    NDP_TRY(ndp_trainer_submit(t));
    return ndp_trainer_result(t, out);
}

int64_t ndp_trainer_updates(const ndp_trainer *t) { return t->updates; }

void ndp_trainer_describe_kernels(const ndp_trainer *t, ndp_str *out) {
    ndp_str_addf(out, "kernels: %s", t->exec.device->variant ? t->exec.device->variant() : t->exec.device->name);
    if (t->model.opts.compute == NDP_BF16 && t->exec.device->variant)
        ndp_str_addf(out, "; products of bf16 %s", ndp_cpu_bf16_way_text());
    ndp_str_add(out, "\n");
}

ndp_status ndp_trainer_describe(const ndp_trainer *t, char **text) {
    ndp_str s = {0};
    char bytes[16], pinned[48] = "";
    ndp_engine_memory own = ndp_engine_memory_of(t->engine), score = {0};
    if (t->score)
        score = ndp_engine_memory_of(t->score);
    ndp_job_describe(&t->job, &s);
    ndp_job_data_describe(&t->data, &s);
    if (own.pinned)
        snprintf(pinned, sizeof pinned, " and %s pinned", ndp_human_bytes((double)(own.pinned + score.pinned), bytes));
    ndp_str_addf(&s, "memory: %s%s planned per rank; %d thread%s per rank\n",
                 ndp_human_bytes((double)(own.device + score.device), bytes), pinned, t->exec.threads,
                 t->exec.threads == 1 ? "" : "s");
    ndp_trainer_describe_kernels(t, &s);
    *text = ndp_str_detach(&s);
    return *text ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "no memory for a text");
}

/* ---- reading tensors: as files hold them, where several segments may be parts of one tensor ---- */

const ndp_segment *ndp_tensor_segment(const ndp_model *m, int i, int *at) {
    int n = 0;
    for (int b = 0; b < m->n_buffers; b++)
        for (int k = 0; k < m->buffers[b].segments.n; k++) {
            const ndp_segment *s = &m->buffers[b].segments.items[k];
            if (!ndp_segment_continues(s) && n++ == i) {
                *at = b;
                return s;
            }
        }
    *at = n;
    return NULL;
}

int ndp_trainer_tensors(const ndp_trainer *t) {
    int n;
    ndp_tensor_segment(&t->model, -1, &n);
    return n;
}

const char *ndp_trainer_tensor(const ndp_trainer *t, int i, int64_t *elements) {
    int n;
    const ndp_segment *s = ndp_tensor_segment(&t->model, i, &n);
    if (!s)
        return NULL;
    *elements = s->whole[0] * s->whole[1];
    return s->name;
}

typedef struct tensor_reading {
    const ndp_segment *segment;
    double *out;
} tensor_reading;

static ndp_status read_run(void *user, const ndp_owned_run *owned) {
    const tensor_reading *r = user;
    const ndp_run *p = &owned->run;
    bool wanted = strcmp(p->segment->name, r->segment->name) == 0 && !p->segment->replica;
    return wanted ? ndp_run_get(owned, 0, p->count, r->out + p->tensor_first, NDP_F64) : NDP_OK;
}

ndp_status ndp_trainer_read(ndp_trainer *t, ndp_which which, int tensor, double *out) {
    int tensors;
    const ndp_segment *s = ndp_tensor_segment(&t->model, tensor, &tensors);
    NDP_CHECK(s, "there is no tensor %d; the model has %d", tensor, tensors);
    int64_t n = s->whole[0] * s->whole[1];
    memset(out, 0, (size_t)n * sizeof *out);
    const ndp_mesh *mesh = &ndp_engine_program(t->engine)->opts.step.mesh;
    if (mesh->coord[NDP_DP_REPLICATE] == 0)
        NDP_TRY(ndp_engine_runs(t->engine, which == NDP_WEIGHT ? NDP_OWNED_MASTER : NDP_OWNED_GRAD, read_run,
                                &(tensor_reading){s, out}));
    return ndp_reduce_now(t->world, out, n, NDP_F64, NDP_SUM);
}
