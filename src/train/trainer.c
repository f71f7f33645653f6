#include "train/trainer.h"

#include "base/clock.h"
#include "base/log.h"
#include "checkpoint/agree.h"
#include "train/host.h"
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- data ---- */

static const char *tokenizer_of(const ndp_config *c) {
    return c->data.tokenizer ? c->data.tokenizer : c->model.path ? c->model.path : "bytes";
}

typedef struct watch {
    const ndp_log *log;
    double begin, last;
} watch;

/* A line every few seconds, once it takes longer. */
static void say_tokenizing(void *user, uint64_t done, uint64_t total) {
    watch *w = user;
    double now = ndp_now();
    if (now - w->last < 5)
        return;
    w->last = now;
    ndp_info(w->log, "tokenizing: %.1f of %.1f MB, %.1f MB/s", (double)done * 1e-6, (double)total * 1e-6,
             (double)done * 1e-6 / (now - w->begin));
}

/* Rank 0 tokenizes (or finds the cache) and tells the others the path; a rank that cannot see it prepares its own. */
static ndp_status prepare_data(ndp_trainer *t, char **path) {
    const ndp_config *c = t->job.config;
    watch w = {&t->log, ndp_now(), ndp_now()};
    ndp_dataset_options o = {.files = (const char *const *)c->data.files.items,
                             .n_files = c->data.files.n,
                             .format = {.text = c->data.text_field},
                             .cache_dir = c->data.cache_dir,
                             .tokenizer = t->tokenizer,
                             .progress = say_tokenizing,
                             .progress_user = &w};
    enum { LONGEST = 4096 };
    char shared[LONGEST] = "";
    *path = NULL;
    bool first = ndp_is_first(t->world);
    ndp_status mine = first ? ndp_dataset_prepare(&o, path) : NDP_OK;
    if (mine == NDP_OK && first)
        snprintf(shared, sizeof shared, "%s", *path);
    NDP_TRY(ndp_agree(t->world, mine));
    ndp_work work;
    NDP_TRY(ndp_broadcast_begin(t->world, shared, LONGEST, 0, &work));
    NDP_TRY(ndp_wait(&work));
    if (first)
        return NDP_OK;
    if (!ndp_path_exists(shared))
        return ndp_dataset_prepare(&o, path);
    *path = ndp_format("%s", shared);
    return *path ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "no memory for a path");
}

static ndp_status open_data(ndp_trainer *t) {
    const ndp_config *c = t->job.config;
    t->tokenizer_source = ndp_format("%s", tokenizer_of(c));
    if (!t->tokenizer_source)
        return NDP_FAIL(NDP_ENOMEM, "no memory for a path");
    NDP_TRY(ndp_tokenizer_create(t->tokenizer_source, &t->tokenizer));
    char *path;
    ndp_status st = prepare_data(t, &path);
    if (st == NDP_OK)
        st = ndp_dataset_open(path, c->data.sequence_length, c->data.document_mask, &t->dataset);
    free(path);
    NDP_TRY(st);
    if (ndp_dataset_largest_id(t->dataset) >= t->job.facts.vocab)
        return NDP_FAIL(
            NDP_EINVAL,
            "the data hold token %d, the model's vocabulary ends at %lld: tokenizer %s does not belong to %s",
            ndp_dataset_largest_id(t->dataset), (long long)t->job.facts.vocab - 1, t->tokenizer_source,
            t->job.facts_path);
    t->sampler = (ndp_sampler){ndp_dataset_rows(t->dataset), (uint64_t)c->train.seed, c->data.shuffle};
    t->shape = (ndp_batch_shape){t->job.batch.global_batch, t->job.batch.micro_batch, t->job.batch.data_ranks};
    return NDP_OK;
}

/* ---- engine ---- */

static ndp_status build_engine(ndp_trainer *t) {
    const ndp_config *c = t->job.config;
    NDP_TRY(ndp_model_build(&t->job.facts, &t->job.model, &t->model));
    ndp_engine_opts o;
    NDP_TRY(ndp_job_engine(&t->job, ndp_transport_rank(t->transport), &o));
    o.model = &t->model;
    o.transport = t->transport;
    o.device = c->train.device == NDP_DEVICE_REF ? &ndp_device_ref : &ndp_device_cpu;
    o.threads = t->threads;
    NDP_TRY(ndp_engine_create(&o, &t->engine));
    size_t rows = (size_t)t->job.model.rows;
    int32_t *arrays = calloc(4 * rows, sizeof *arrays);
    if (!arrays)
        return NDP_FAIL(NDP_ENOMEM, "no memory for a micro-batch of %zu tokens", rows);
    t->whole = (ndp_micro_batch){arrays, arrays + rows, arrays + 2 * rows, arrays + 3 * rows};
    return c->model.init == NDP_INIT_RANDOM ? ndp_weights_draw(t->engine, (uint64_t)c->train.seed)
                                            : ndp_weights_load(t->engine, c->model.path);
}

static ndp_status setup(ndp_trainer *t) {
    ndp_group all = {0, 1, ndp_transport_world(t->transport), ndp_transport_rank(t->transport)};
    NDP_TRY(ndp_comm_create(t->transport, all, "world", &t->world));
    int threads = t->job.config->train.threads;
    t->threads = threads ? threads : ndp_device_threads(ndp_transport_node_ranks(t->transport));
    omp_set_num_threads(t->threads);
    NDP_TRY(ndp_bind_launched_rank(t->threads));
    NDP_TRY(ndp_agree(t->world, open_data(t)));
    return ndp_agree(t->world, build_engine(t));
}

ndp_status ndp_trainer_create(const ndp_config *c, ndp_world *w, ndp_trainer **out) {
    ndp_trainer *t = calloc(1, sizeof *t);
    if (!t)
        return NDP_FAIL(NDP_ENOMEM, "no memory for a trainer");
    t->transport = w;
    t->log = (ndp_log){NDP_LOG_INFO, ndp_transport_rank(w)};
    ndp_status st = ndp_job_init(c, ndp_transport_world(w), &t->job);
    if (st == NDP_OK)
        st = setup(t);
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
    ndp_engine_destroy(t->engine);
    ndp_model_release(&t->model);
    ndp_dataset_close(t->dataset);
    ndp_tokenizer_destroy(t->tokenizer);
    ndp_comm_destroy(t->world);
    ndp_job_release(&t->job);
    free(t->tokenizer_source);
    free(t->whole.tokens);
    free(t);
}

/* ---- steps ---- */

/* Sample j of a micro-batch: S rows of its arrays from j S on. Positions are rows of the whole micro-batch, so the
 * samples of a micro-batch are documents like any others. */
static ndp_status load_sample(const ndp_trainer *t, int64_t j, int64_t sample) {
    int64_t length = t->job.config->data.sequence_length, at = j * length;
    ndp_micro_batch b = t->whole;
    NDP_TRY(ndp_dataset_row(t->dataset, ndp_sampler_row(&t->sampler, sample), b.tokens + at, b.labels + at,
                            b.rope_pos + at, b.q_low + at));
    for (int64_t s = 0; s < length; s++)
        b.q_low[at + s] += (int32_t)at;
    return NDP_OK;
}

static ndp_status load_batches(const ndp_trainer *t) {
    const ndp_mesh *mesh = &ndp_engine_program(t->engine)->opts.mesh;
    int rank = ndp_mesh_group(mesh, NDP_GROUP_DATA).rank;
    for (int m = 0; m < t->job.batch.accumulation; m++) {
        for (int64_t j = 0; j < t->shape.micro; j++)
            NDP_TRY(load_sample(t, j, t->samples + ndp_sample_index(&t->shape, 0, m, rank, j)));
        ndp_engine_load(t->engine, m, &t->whole);
    }
    return NDP_OK;
}

static double learning_rate(const ndp_trainer *t) {
    const ndp_config *c = t->job.config;
    static const ndp_schedule_kind kinds[] = {[NDP_SCHEDULE_CONSTANT] = NDP_LR_CONSTANT,
                                              [NDP_SCHEDULE_LINEAR] = NDP_LR_LINEAR,
                                              [NDP_SCHEDULE_COSINE] = NDP_LR_COSINE};
    ndp_schedule s = {kinds[c->schedule.name], c->optimizer.lr, c->schedule.min_lr_ratio, c->schedule.warmup_steps,
                      c->train.steps};
    return ndp_schedule_lr(&s, t->updates);
}

/* The most memory that this process has had resident, bytes. */
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

ndp_status ndp_trainer_step(ndp_trainer *t, ndp_metrics *out) {
    double start = ndp_now(), lr = learning_rate(t);
    NDP_TRY(load_batches(t));
    ndp_step_result r;
    NDP_TRY(ndp_engine_step(t->engine, lr, t->updates, true, &r));
    t->updates++;
    t->samples += t->shape.global;
    double seconds = ndp_now() - start;
    double work = 6.0 * (double)ndp_facts_parameters(&t->job.facts) * (double)r.tokens;
    *out = (ndp_metrics){.step = t->updates,
                         .loss = r.loss,
                         .grad_norm = r.grad_norm,
                         .lr = lr,
                         .tokens = r.tokens,
                         .tokens_per_second = (double)r.tokens / seconds,
                         .step_seconds = seconds,
                         .mfu = t->peak_flops > 0 ? work / seconds / (t->peak_flops * t->job.world) : 0.0,
                         .peak_memory_bytes = peak_memory()};
    return NDP_OK;
}

int64_t ndp_trainer_updates(const ndp_trainer *t) { return t->updates; }

ndp_status ndp_trainer_describe(const ndp_trainer *t, char **text) {
    ndp_str s = {0};
    char bytes[16];
    ndp_budget budget;
    ndp_program_budget(ndp_engine_program(t->engine), &budget);
    ndp_job_describe(&t->job, &s);
    ndp_str_addf(&s, "data: %lld documents, %lld tokens, %lld rows an epoch\n",
                 (long long)ndp_dataset_documents(t->dataset), (long long)ndp_dataset_tokens(t->dataset),
                 (long long)ndp_dataset_rows(t->dataset));
    ndp_str_addf(&s, "memory: %s planned a rank; %d thread%s a rank\n", ndp_human_bytes((double)budget.total, bytes),
                 t->threads, t->threads == 1 ? "" : "s");
    *text = ndp_str_detach(&s);
    return *text ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "no memory for a text");
}

/* ---- looking inside: tensors as files hold them, of which several segments may be parts ---- */

/* The first part of tensor number i; *n: how many tensors there are, when i is not one of them. */
static const ndp_segment *tensor_at(const ndp_model *m, int i, int *n) {
    *n = 0;
    for (int b = 0; b < m->n_buffers; b++)
        for (int k = 0; k < m->buffers[b].segments.n; k++) {
            const ndp_segment *s = &m->buffers[b].segments.items[k];
            if (!ndp_segment_continues(s) && (*n)++ == i)
                return s;
        }
    return NULL;
}

int ndp_trainer_tensors(const ndp_trainer *t) {
    int n;
    tensor_at(&t->model, -1, &n);
    return n;
}

const char *ndp_trainer_tensor(const ndp_trainer *t, int i, int64_t *elements) {
    int n;
    const ndp_segment *s = tensor_at(&t->model, i, &n);
    if (!s)
        return NULL;
    *elements = s->whole[0] * s->whole[1];
    return s->name;
}

typedef struct reading {
    const ndp_trainer *t;
    const ndp_segment *segment;
    double *out;
} reading;

static ndp_status read_piece(void *user, const ndp_run *p, void *data) {
    const reading *r = user;
    if (strcmp(p->segment->name, r->segment->name) == 0 && !p->segment->replica)
        ndp_convert_apart(data, r->t->model.opts.master, p->stride, r->out + p->tensor_first, NDP_F64, 1, p->count);
    return NDP_OK;
}

ndp_status ndp_trainer_read(ndp_trainer *t, ndp_which which, int tensor, double *out) {
    int tensors;
    const ndp_segment *s = tensor_at(&t->model, tensor, &tensors);
    NDP_CHECK(s, "there is no tensor %d; the model has %d", tensor, tensors);
    int64_t n = s->whole[0] * s->whole[1];
    memset(out, 0, (size_t)n * sizeof *out);
    const ndp_mesh *mesh = &ndp_engine_program(t->engine)->opts.mesh;
    if (mesh->coord[NDP_DP_REPLICATE] == 0)
        NDP_TRY(ndp_engine_runs(t->engine, which == NDP_WEIGHT ? NDP_OWNED_MASTER : NDP_OWNED_GRAD, read_piece,
                                &(reading){t, s, out}));
    ndp_work work;
    NDP_TRY(ndp_all_reduce_begin(t->world, out, n, NDP_F64, NDP_SUM, &work));
    return ndp_wait(&work);
}
