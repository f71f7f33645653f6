/* Compares the planned memory of this host's ranks with what the host has, before anything is allocated. Called twice:
 * before tokenizing, which may take long, and again once the tables of rows are in memory. A micro-batch that is auto
 * is chosen by the same comparison. */
#include "checkpoint/agree.h"
#include "launch/memory_need.h"
#include "plan/gpu_memory.h"
#include "plan/micro_batch.h"
#include "rank/rank.h"

#include <string.h>

static ndp_status check_gpu(const ndp_rank *r, const ndp_log *log) {
    if (r->planned_gpu == 0)
        return NDP_OK;
    const ndp_gpu_memory m = ndp_gpu_memory_of(&r->job, ndp_transport_host_ranks(r->transport), r->planned_gpu);
    return ndp_gpu_memory_check(&r->job, &m, log);
}

/* What this host's ranks need, `bytes` each by their programs. */
static ndp_status need_of(const ndp_rank *r, int64_t bytes, ndp_memory_need *out) {
    static const char train[] =
        "Lower batch.micro_batch_size or data.sequence_length, set train.recompute: block, shard "
        "more (parallelism.dp_shard_size) or use more hosts",
                      copying[] =
                          "Set checkpoint.async: auto, lower batch.micro_batch_size or data.sequence_length, "
                          "set train.recompute: block, shard more (parallelism.dp_shard_size) or use more hosts",
                      forward[] = "Lower batch.micro_batch_size or data.sequence_length, shard more "
                                  "(parallelism.dp_shard_size) or use more hosts";
    bool threads = strcmp(ndp_transport_name(r->transport), "local") == 0;
    NDP_TRY(ndp_job_memory_need(&r->job, ndp_transport_host_ranks(r->transport), bytes, threads, true, out));
    out->what = r->forward_only ? "the evaluation" : "the run";
    out->less = r->forward_only ? forward : r->job.config->checkpoint.async == NDP_ASYNC_TRUE ? copying : train;
    return NDP_OK;
}

ndp_status ndp_rank_check_memory(const ndp_rank *r) {
    ndp_memory_need need;
    NDP_TRY(need_of(r, ndp_mean_memory_least(&r->job, &r->planned), &need));
    bool warn = ndp_is_first(r->world) && !r->data.dataset && !r->data.held; /* once */
    const ndp_log *log = warn ? &r->log : NULL;
    NDP_TRY(ndp_agree(r->world, ndp_memory_check(&need, r->job.config->train.force_memory, log)));
    return ndp_agree(r->world, check_gpu(r, log));
}

/* ---- batch.micro_batch_size auto ---- */

static bool gpu_lacks(const ndp_rank *r, const ndp_job *j, int64_t bytes, ndp_memory_lack *lack) {
    if (bytes == 0)
        return false;
    const ndp_gpu_memory m = ndp_gpu_memory_of(j, ndp_transport_host_ranks(r->transport), bytes);
    *lack = (ndp_memory_lack){ndp_gpu_memory_need(&m), m.has};
    return m.has > 0 && lack->need > lack->has;
}

/* All ranks build their programs, then all compare. The first that lacks memory says how much. */
static ndp_status try_rows(void *user, const ndp_job *j, ndp_rows_trial *out) {
    const ndp_rank *r = user;
    ndp_mean_memory host = {0};
    int64_t gpu = 0, world = ndp_transport_world(r->transport);
    ndp_memory_need need;
    ndp_str unused = {0};
    NDP_TRY(ndp_agree(r->world, ndp_rank_plan_memory(r, j, &host, &gpu)));
    NDP_TRY(ndp_agree(r->world, need_of(r, ndp_mean_memory_least(j, &host), &need)));
    bool lacks = ndp_memory_compare(&need, &out->lack, &unused) || gpu_lacks(r, j, gpu, &out->lack);
    ndp_str_release(&unused);
    int64_t first = lacks ? world - ndp_transport_rank(r->transport) : 0;
    NDP_TRY(ndp_reduce_now(r->world, &first, 1, NDP_I64, NDP_MAX));
    out->fits = first == 0;
    return out->fits ? NDP_OK : ndp_share_now(r->world, &out->lack, sizeof out->lack, (int)(world - first));
}

ndp_status ndp_rank_choose_rows(ndp_rank *r, bool *fits) {
    *fits = true;
    return r->job.config->batch.micro_batch_size ? NDP_OK : ndp_choose_rows(&r->job, try_rows, r, &r->chosen, fits);
}

/* ---- checkpoint.async ---- */

ndp_status ndp_rank_choose_saves(ndp_rank *r) {
    double lacks = 0;
    ndp_memory_need need;
    ndp_str unused = {0};
    if (!r->opts || r->forward_only || !ndp_job_copies(&r->job))
        return NDP_OK;
    if (r->job.config->checkpoint.async == NDP_ASYNC_AUTO) {
        ndp_memory_lack lack;
        NDP_TRY(ndp_agree(r->world, need_of(r, r->planned.programs + r->planned.copy, &need)));
        lacks = ndp_memory_compare(&need, &lack, &unused);
        ndp_str_release(&unused);
        NDP_TRY(ndp_reduce_now(r->world, &lacks, 1, NDP_F64, NDP_SUM));
    }
    r->background = lacks == 0;
    return NDP_OK;
}
