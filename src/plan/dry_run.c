/* Programs and bytes of ranks that do not run: built for the job's device, which maps no memory and executes nothing.
 */
#include "plan/plan_parts.h"

#include "model/text_cache.h"
#include "weights/weights.h"

#include <stdlib.h>
#include <string.h>

ndp_status ndp_dry_run_init(ndp_dry_run *d, const ndp_job *j, int per_node, int split_place) {
    NDP_TRY(ndp_device_find_plan(ndp_device_names[j->config->train.device], &d->device));
    d->job = j;
    d->fold = NDP_FOLD_IF_NO_LARGER, d->unplaced = d->only_fullest = false, d->enough = 0, d->likely = NDP_NONE,
    d->most = 0;
    d->kept = NULL;
    d->per_node = per_node;
    d->exec = ndp_exec_of(&d->device, ndp_job_threads(j, per_node), split_place);
    d->exec.staged = ndp_job_stages(j);
    return NDP_OK;
}

ndp_status ndp_dry_run_keep(ndp_dry_run *d, const ndp_model *m) {
    d->kept = calloc((size_t)d->job->layout.size[NDP_PP], sizeof *d->kept);
    d->of = m;
    return NDP_MEMORY(d->kept, "for %d stages", d->job->layout.size[NDP_PP]);
}

void ndp_dry_run_release(ndp_dry_run *d) {
    for (int i = 0; d->kept && i < d->job->layout.size[NDP_PP]; i++)
        ndp_engine_destroy(d->kept[i]);
    free(d->kept);
    d->kept = NULL;
}

static ndp_status build_engine(const ndp_dry_run *d, const ndp_model *m, int rank, size_t enough, ndp_engine **out) {
    ndp_engine_opts e;
    NDP_TRY(ndp_job_engine(d->job, rank, &d->exec, &e));
    e.model = m;
    e.step.node_ranks = d->per_node;
    e.step.fold = d->fold, e.step.unplaced = d->unplaced, e.step.enough = enough;
    return ndp_engine_create(&e, out);
}

ndp_status ndp_plan_engine(const ndp_dry_run *d, const ndp_model *m, int rank, ndp_engine **out) {
    return ndp_plan_engine_in(d, m, rank, 0, out);
}

ndp_status ndp_plan_engine_in(const ndp_dry_run *d, const ndp_model *m, int rank, size_t enough, ndp_engine **out) {
    int stage = d->job->world / d->job->layout.size[NDP_PP];
    ndp_engine **kept = d->kept && d->of == m && rank % stage == 0 ? &d->kept[rank / stage] : NULL;
    if (!kept)
        return build_engine(d, m, rank, enough, out);
    if (!*kept)
        NDP_TRY(build_engine(d, m, rank, enough, kept));
    *out = ndp_engine_share(*kept);
    return NDP_OK;
}

ndp_engine_memory ndp_engine_memory_of(const ndp_engine *e) {
    ndp_budget budget;
    const ndp_program *p = ndp_engine_program(e);
    ndp_program_budget(p, &budget);
    int64_t device = (int64_t)budget.total, pinned = (int64_t)budget.staging;
    return (ndp_engine_memory){device, pinned, pinned + (p->opts.step.exec->device->host_memory ? device : 0), 0};
}

int64_t ndp_plan_nccl(const ndp_dry_run *d, const ndp_engine *e) {
    const ndp_program *p = ndp_engine_program(e);
    bool threads = strcmp(d->job->config->train.transport, "local") == 0;
    return d->device.host_memory || d->exec.staged || threads ? 0 : ndp_program_nccl_bytes(p, p->opts.weights_of);
}

static bool samples(const ndp_job *j) { return j->config->train.sample_every > 0 || j->config->train.own_batches; }

static bool holds_out(const ndp_job *j) {
    return j->config->data.validation_fraction > 0 || j->config->data.validation_files.n > 0 || ndp_job_refers(j);
}

bool ndp_plan_trains_alone(const ndp_dry_run *d) {
    return !d->device.host_memory && !samples(d->job) && !holds_out(d->job) && d->job->config->train.own_generate == 0;
}

ndp_status ndp_plan_score_engine(const ndp_dry_run *d, int rank, const ndp_engine *trained, ndp_model *m,
                                 ndp_engine **out) {
    ndp_engine_opts e;
    *out = NULL;
    if (!holds_out(d->job) && !(trained && samples(d->job)))
        return NDP_OK;
    NDP_TRY(ndp_job_score(d->job, rank, &d->exec, trained, m, &e));
    e.step.node_ranks = d->per_node;
    ndp_status st = ndp_engine_create(&e, out);
    if (st != NDP_OK)
        ndp_model_release(m);
    return st;
}

ndp_status ndp_plan_score(const ndp_dry_run *d, int rank, const ndp_engine *trained, ndp_engine_memory *out) {
    ndp_model m;
    ndp_engine *score;
    *out = (ndp_engine_memory){0};
    NDP_TRY(ndp_plan_score_engine(d, rank, trained, &m, &score));
    if (!score)
        return NDP_OK;
    *out = ndp_engine_memory_of(score);
    ndp_engine_destroy(score);
    ndp_model_release(&m);
    return NDP_OK;
}

/* Two engines, which share the weights of the first, and what they keep of texts. */
static ndp_status plan_texts(const ndp_dry_run *d, const ndp_facts *f, const ndp_text_cache *c,
                             ndp_engine_memory *out) {
    ndp_model models[2] = {0};
    ndp_engine *engines[2] = {NULL};
    ndp_status st = NDP_OK;
    *out = (ndp_engine_memory){.device = ndp_text_cache_bytes(c, f)};
    for (int i = 0; i < 2 && st == NDP_OK; i++) {
        ndp_engine_opts e = {.model = &models[i],
                             .step = {.parallel = NDP_PARALLEL_INIT, .exec = &d->exec, .accumulation = 1},
                             .weights_of = engines[0]};
        st = ndp_mesh_init(&(ndp_layout)NDP_LAYOUT_ONE, 0, &(ndp_mesh_facts){.kv_heads = ndp_facts_layout(f).kv_heads},
                           &e.step.mesh);
        if (st == NDP_OK)
            st = ndp_text_cache_build(c, f, &d->job->model.adapter, i ? c->texts : c->chunk, &models[i]);
        if (st == NDP_OK)
            st = ndp_engine_create(&e, &engines[i]);
        if (st == NDP_OK)
            out->device += ndp_engine_memory_of(engines[i]).device;
    }
    out->host = d->device.host_memory ? out->device : 0;
    for (int i = 2; i-- > 0;) {
        ndp_engine_destroy(engines[i]);
        ndp_model_release(&models[i]);
    }
    return st;
}

ndp_status ndp_plan_texts(const ndp_dry_run *d, ndp_engine_memory *out) {
    const ndp_config *c = d->job->config;
    const ndp_facts *facts;
    *out = (ndp_engine_memory){0};
    if (c->train.own_generate == 0)
        return NDP_OK;
    NDP_TRY(ndp_spec_decoder(&d->job->spec, "train.own_generate", &facts));
    const ndp_text_cache texts = {c->train.own_generate, c->data.sequence_length, NDP_CHUNK_ROWS};
    NDP_CHECK(texts.texts <= INT32_MAX / (texts.longest + 2 * NDP_CHUNK_ROWS),
              "train.own_generate: %lld texts of %lld tokens are more than 2^31 rows; lower it", (long long)texts.texts,
              (long long)texts.longest);
    return plan_texts(d, facts, &texts, out);
}

static ndp_engine_memory sum_of(ndp_engine_memory a, ndp_engine_memory b) {
    return (ndp_engine_memory){a.device + b.device, a.pinned + b.pinned, a.host + b.host, a.copy + b.copy};
}

/* Of one rank for training and for scoring held-out rows. */
static ndp_status plan_training(const ndp_dry_run *d, int rank, ndp_engine_memory *out) {
    ndp_model m;
    ndp_engine *engine;
    ndp_engine_memory score;
    NDP_TRY(ndp_model_build(&d->job->spec, &d->job->model, &m));
    ndp_status st = ndp_plan_engine(d, &m, rank, &engine);
    if (st == NDP_OK) {
        st = ndp_plan_score(d, rank, engine, &score);
        *out = sum_of(ndp_engine_memory_of(engine), score);
        out->copy = ndp_job_copies(d->job) ? ndp_checkpoint_own_bytes(engine) : 0;
        ndp_engine_destroy(engine);
    }
    ndp_model_release(&m);
    return st;
}

ndp_status ndp_dry_run_at(ndp_dry_run *d, const ndp_job *j, const ndp_program_place *at) {
    NDP_TRY(ndp_dry_run_init(d, j, at->node_ranks, at->split_place));
    d->exec.threads = at->threads;
    return NDP_OK;
}

/* Besides what a rank needs to continue texts. */
static ndp_status rank_needs(const ndp_dry_run *d, int rank, bool forward_only, ndp_engine_memory *out) {
    return forward_only ? ndp_plan_score(d, rank, NULL, out) : plan_training(d, rank, out);
}

static ndp_status texts_need(const ndp_dry_run *d, bool forward_only, ndp_engine_memory *out) {
    *out = (ndp_engine_memory){0};
    return forward_only ? NDP_OK : ndp_plan_texts(d, out);
}

/* The first rank of each data rank continues its texts; ranks of the first replica save. */
static ndp_status find_duties(const ndp_job *j, int rank, bool *leads, bool *saves) {
    ndp_mesh mesh;
    NDP_TRY(ndp_mesh_init(&j->layout, rank, NDP_NO_MODEL, &mesh));
    *leads = ndp_mesh_leads(&mesh);
    *saves = mesh.coord[NDP_DP_REPLICATE] == 0;
    return NDP_OK;
}

bool ndp_job_copies(const ndp_job *j) {
    const ndp_config *c = j->config;
    return c->checkpoint.async != NDP_ASYNC_FALSE && (c->checkpoint.every > 0 || c->checkpoint.minutes > 0) &&
           !c->train.own_batches;
}

int64_t ndp_mean_memory_least(const ndp_job *j, const ndp_mean_memory *m) {
    return m->programs + (j->config->checkpoint.async == NDP_ASYNC_TRUE ? m->copy : 0);
}

ndp_status ndp_job_rank_needs(const ndp_job *j, int rank, const ndp_program_place *at, ndp_engine_memory *out) {
    ndp_dry_run d;
    ndp_engine_memory texts;
    bool first, saves;
    NDP_TRY(ndp_dry_run_at(&d, j, at));
    NDP_TRY(find_duties(j, rank, &first, &saves));
    NDP_TRY(rank_needs(&d, rank, at->forward_only, out));
    NDP_TRY(texts_need(&d, at->forward_only || !first, &texts));
    *out = sum_of(*out, texts);
    out->copy = saves ? out->copy : 0;
    return NDP_OK;
}

ndp_status ndp_job_ranks_memory(const ndp_job *j, const int *ranks, int n, const ndp_program_place *at,
                                ndp_mean_memory *out) {
    int stage = j->world / j->layout.size[NDP_PP];
    ndp_engine_memory one = {0}, texts;
    ndp_dry_run d;
    int64_t sum = 0, copies = 0;
    NDP_TRY(ndp_dry_run_at(&d, j, at));
    NDP_TRY(texts_need(&d, at->forward_only, &texts));
    for (int i = 0; i < n; i++) { /* all ranks of a place on pp need the same */
        bool first, saves;
        if (i == 0 || ranks[i] / stage != ranks[i - 1] / stage)
            NDP_TRY(rank_needs(&d, ranks[i], at->forward_only, &one));
        NDP_TRY(find_duties(j, ranks[i], &first, &saves));
        sum += one.host + (first ? texts.host : 0);
        copies += saves ? one.copy : 0;
    }
    *out = (ndp_mean_memory){(sum + n - 1) / n, (copies + n - 1) / n};
    return NDP_OK;
}

/* Of the ranks first .. end - 1. */
static ndp_status memory_between(const ndp_job *j, int first, int end, const ndp_program_place *at,
                                 ndp_mean_memory *out) {
    int n = end - first, *ranks = malloc((size_t)n * sizeof *ranks);
    NDP_CHECK_MEMORY(ranks, "for a list of %d ranks", n);
    for (int i = 0; i < n; i++)
        ranks[i] = first + i;
    ndp_status st = ndp_job_ranks_memory(j, ranks, n, at, out);
    free(ranks);
    return st;
}

ndp_status ndp_job_node_memory(const ndp_job *j, int rank, int node_ranks, ndp_mean_memory *out) {
    int first = rank / node_ranks * node_ranks, end = first + node_ranks < j->world ? first + node_ranks : j->world;
    const ndp_program_place at = {.node_ranks = node_ranks, .threads = ndp_job_threads(j, node_ranks)};
    return memory_between(j, first, end, &at, out);
}

ndp_status ndp_job_memory(const ndp_job *j, int split_place, int64_t *bytes) {
    ndp_engine_memory one;
    int64_t sum = 0;
    const ndp_program_place at = {
        .node_ranks = j->world, .threads = ndp_job_threads(j, j->world), .split_place = split_place};
    for (int r = 0; r < j->world; r++, sum += one.host)
        NDP_TRY(ndp_job_rank_needs(j, r, &at, &one));
    *bytes = sum;
    return NDP_OK;
}

/* How many ranks of a host have memory that a process maps: all if they are its threads, else those that it sums or
 * gathers with, or receives messages from. */
ndp_status ndp_job_memory_need(const ndp_job *j, int ranks, int64_t bytes, bool threads, bool running,
                               ndp_memory_need *out) {
    static const ndp_group_kind kinds[] = {NDP_GROUP_SHARD, NDP_GROUP_REPLICATE, NDP_GROUP_TP, NDP_GROUP_PP};
    ndp_mesh mesh;
    int partners = 1;
    NDP_TRY(ndp_mesh_init(&j->layout, 0, NULL, &mesh));
    for (int i = 0; i < NDP_COUNT(kinds); i++)
        partners += ndp_mesh_group(&mesh, kinds[i]).count - 1;
    *out = (ndp_memory_need){.rank = bytes,
                             .ranks = ranks,
                             .mapped = threads || partners > ranks ? ranks : partners,
                             .shared = ranks > 1 && !threads,
                             .processes = threads ? 1 : ranks,
                             .running = running,
                             .what = "the run",
                             .less = ""};
    return NDP_OK;
}
