/* The options of a rank's engine, as a job has them: for training, and for passes over held-out rows. */
#include "job/job.h"

#include "ops/devices.h"
#include <string.h>

int ndp_job_threads(const ndp_job *j, int node_ranks) {
    int threads = j->config->train.threads;
    return threads ? threads : ndp_device_threads(node_ranks);
}

bool ndp_job_stages(const ndp_job *j) {
    const ndp_config *c = j->config;
    if (c->train.collectives != NDP_COLLECTIVES_AUTO)
        return c->train.collectives == NDP_COLLECTIVES_STAGED;
    if (j->world > 1 && strcmp(c->train.transport, "local") == 0)
        return !c->train.share_gpu;
    return j->world > 1 && (c->train.share_gpu || strcmp(ndp_device_names[c->train.device], "cuda") != 0);
}

ndp_status ndp_job_engine(const ndp_job *j, int rank, const ndp_exec *exec, ndp_engine_opts *out) {
    const ndp_config *c = j->config;
    *out = (ndp_engine_opts){.step = {.exec = exec,
                                      .accumulation = j->batch.accumulation,
                                      .reshard = c->parallelism.reshard_after_forward,
                                      .reduce_once = c->parallelism.reduce_every == NDP_REDUCE_EVERY_UPDATE,
                                      .stages = j->stages,
                                      .recompute = c->train.recompute,
                                      .parallel = {.tp_sequence_parallel = c->parallelism.tp_sequence_parallel,
                                                   .cp_method = c->parallelism.cp_method,
                                                   .cp_zigzag = c->parallelism.cp_zigzag,
                                                   .capacity_factor = c->moe.capacity_factor,
                                                   .head_rows = exec && !exec->device->host_memory ? 2048 : 0},
                                      .optimizer = ndp_job_optimizer(j)},
                             .pipeline = j->pipeline.ranks ? &j->pipeline : NULL};
    return ndp_mesh_init(&j->layout, rank, &(ndp_mesh_facts){.kv_heads = j->spec.layout.kv_heads, .ties = j->ties},
                         &out->step.mesh);
}

ndp_status ndp_job_score(const ndp_job *j, int rank, const ndp_exec *exec, const ndp_engine *trained, ndp_model *m,
                         ndp_engine_opts *out) {
    ndp_model_opts opts = j->model;
    opts.mode = NDP_MODEL_SCORE;
    opts.routes = 0; /* choices are given to the rows of an update, not to these */
    NDP_TRY(ndp_job_engine(j, rank, exec, out));
    out->step.accumulation = j->forward.ranks ? j->forward.micro_batches : 1;
    out->pipeline = j->forward.ranks ? &j->forward : NULL;
    out->weights_of = trained;
    out->model = m;
    return ndp_model_build(&j->spec, &opts, m);
}
