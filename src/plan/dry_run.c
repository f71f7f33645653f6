/* Programs and bytes of ranks that do not run: built for the job's device, which maps no memory and executes nothing.
 */
#include "plan/plan_parts.h"

#include <stdlib.h>

ndp_status ndp_dry_run_init(ndp_dry_run *d, const ndp_job *j, int per_node, int split_place) {
    NDP_TRY(ndp_device_find_plan(ndp_device_names[j->config->train.device], &d->device));
    d->job = j;
    d->per_node = per_node;
    d->exec = ndp_exec_of(&d->device, ndp_job_threads(j, per_node), split_place);
    d->exec.staged = ndp_job_stages(j);
    return NDP_OK;
}

ndp_status ndp_plan_engine(const ndp_dry_run *d, const ndp_model *m, int rank, ndp_engine **out) {
    ndp_engine_opts e;
    NDP_TRY(ndp_job_engine(d->job, rank, &d->exec, &e));
    e.model = m;
    e.step.node_ranks = d->per_node;
    return ndp_engine_create(&e, out);
}

ndp_engine_memory ndp_engine_memory_of(const ndp_engine *e) {
    ndp_budget budget;
    const ndp_program *p = ndp_engine_program(e);
    ndp_program_budget(p, &budget);
    int64_t device = (int64_t)budget.total, pinned = (int64_t)budget.staging;
    return (ndp_engine_memory){device, pinned, pinned + (p->opts.step.exec->device->host_memory ? device : 0)};
}

ndp_status ndp_plan_score_engine(const ndp_dry_run *d, int rank, const ndp_engine *trained, ndp_model *m,
                                 ndp_engine **out) {
    const ndp_config *c = d->job->config;
    ndp_engine_opts e;
    *out = NULL;
    bool samples = trained && (c->train.sample_every > 0 || c->train.own_batches);
    if (c->data.validation_fraction == 0 && c->data.validation_files.n == 0 && !ndp_job_refers(d->job) && !samples)
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

/* Of one rank for training and for scoring held-out rows. */
static ndp_status plan_training(const ndp_dry_run *d, int rank, ndp_engine_memory *out) {
    ndp_model m;
    ndp_engine *engine;
    ndp_engine_memory score;
    NDP_TRY(ndp_model_build(&d->job->spec, &d->job->model, &m));
    ndp_status st = ndp_plan_engine(d, &m, rank, &engine);
    if (st == NDP_OK) {
        st = ndp_plan_score(d, rank, engine, &score);
        *out = ndp_engine_memory_of(engine);
        *out = (ndp_engine_memory){out->device + score.device, out->pinned + score.pinned, out->host + score.host};
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

ndp_status ndp_job_rank_needs(const ndp_job *j, int rank, const ndp_program_place *at, ndp_engine_memory *out) {
    ndp_dry_run d;
    NDP_TRY(ndp_dry_run_at(&d, j, at));
    return at->forward_only ? ndp_plan_score(&d, rank, NULL, out) : plan_training(&d, rank, out);
}

ndp_status ndp_job_ranks_memory(const ndp_job *j, const int *ranks, int n, const ndp_program_place *at,
                                int64_t *bytes) {
    int stage = j->world / j->layout.size[NDP_PP];
    ndp_engine_memory one = {0};
    int64_t sum = 0;
    for (int i = 0; i < n; i++) { /* all ranks of a place on pp need the same */
        if (i == 0 || ranks[i] / stage != ranks[i - 1] / stage)
            NDP_TRY(ndp_job_rank_needs(j, ranks[i], at, &one));
        sum += one.host;
    }
    *bytes = (sum + n - 1) / n;
    return NDP_OK;
}

/* Of the ranks first .. end - 1. */
static ndp_status memory_between(const ndp_job *j, int first, int end, const ndp_program_place *at, int64_t *bytes) {
    int n = end - first, *ranks = malloc((size_t)n * sizeof *ranks);
    if (!ranks)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for a list of %d ranks", n);
    for (int i = 0; i < n; i++)
        ranks[i] = first + i;
    ndp_status st = ndp_job_ranks_memory(j, ranks, n, at, bytes);
    free(ranks);
    return st;
}

ndp_status ndp_job_node_memory(const ndp_job *j, int rank, int node_ranks, int64_t *bytes) {
    int first = rank / node_ranks * node_ranks, end = first + node_ranks < j->world ? first + node_ranks : j->world;
    const ndp_program_place at = {.node_ranks = node_ranks, .threads = ndp_job_threads(j, node_ranks)};
    return memory_between(j, first, end, &at, bytes);
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
