/* Programs and bytes of ranks that do not run: built on the null device, which has no kernels' results and no memory.
 */
#include "train/plan_parts.h"

ndp_dry_run ndp_dry_run_of(const ndp_job *j, int per_node, int split_place) {
    return (ndp_dry_run){j, per_node, ndp_exec_of(&ndp_device_null, ndp_job_threads(j, per_node), split_place)};
}

ndp_status ndp_plan_engine(const ndp_dry_run *d, const ndp_model *m, int rank, ndp_engine **out) {
    ndp_engine_opts e;
    NDP_TRY(ndp_job_engine(d->job, rank, &d->exec, &e));
    e.model = m;
    e.node_ranks = d->per_node;
    return ndp_engine_create(&e, out);
}

int64_t ndp_engine_bytes(const ndp_engine *e) {
    ndp_budget budget;
    ndp_program_budget(ndp_engine_program(e), &budget);
    return (int64_t)budget.total;
}

ndp_status ndp_score_bytes(const ndp_dry_run *d, int rank, const ndp_engine *trained, int64_t *bytes) {
    const ndp_config *c = d->job->config;
    ndp_model m;
    ndp_engine_opts e;
    ndp_engine *score = NULL;
    *bytes = 0;
    if (c->data.validation_fraction == 0 && c->data.validation_files.n == 0)
        return NDP_OK;
    NDP_TRY(ndp_job_score(d->job, rank, &d->exec, trained, &m, &e));
    e.node_ranks = d->per_node;
    ndp_status st = ndp_engine_create(&e, &score);
    if (st == NDP_OK)
        *bytes = ndp_engine_bytes(score);
    ndp_engine_destroy(score);
    ndp_model_release(&m);
    return st;
}

/* Bytes of one rank for training and for scoring held-out rows. */
static ndp_status train_bytes(const ndp_dry_run *d, int rank, int64_t *bytes) {
    ndp_model m;
    ndp_engine *engine;
    NDP_TRY(ndp_model_build(&d->job->facts, &d->job->model, &m));
    ndp_status st = ndp_plan_engine(d, &m, rank, &engine);
    if (st == NDP_OK) {
        st = ndp_score_bytes(d, rank, engine, bytes);
        *bytes += ndp_engine_bytes(engine);
        ndp_engine_destroy(engine);
    }
    ndp_model_release(&m);
    return st;
}

ndp_status ndp_job_rank_memory(const ndp_job *j, int rank, int per_node, int split_place, bool forward_only,
                               int64_t *bytes) {
    ndp_dry_run d = ndp_dry_run_of(j, per_node, split_place);
    return forward_only ? ndp_score_bytes(&d, rank, NULL, bytes) : train_bytes(&d, rank, bytes);
}

ndp_status ndp_job_node_memory(const ndp_job *j, int rank, int per_node, int split_place, bool forward_only,
                               int64_t *bytes) {
    int first = rank / per_node * per_node, end = first + per_node < j->world ? first + per_node : j->world;
    int stage = j->world / j->layout.size[NDP_PP];
    int64_t sum = 0;
    for (int r = first, next; r < end; r = next) { /* all ranks of a place on pp need the same */
        int64_t one;
        next = (r / stage + 1) * stage < end ? (r / stage + 1) * stage : end;
        NDP_TRY(ndp_job_rank_memory(j, r, per_node, split_place, forward_only, &one));
        sum += one * (next - r);
    }
    *bytes = (sum + end - first - 1) / (end - first);
    return NDP_OK;
}

ndp_status ndp_job_memory(const ndp_job *j, int split_place, int64_t *bytes) {
    int64_t sum = 0, one;
    for (int r = 0; r < j->world; r++, sum += one)
        NDP_TRY(ndp_job_rank_memory(j, r, j->world, split_place, false, &one));
    *bytes = sum;
    return NDP_OK;
}
