/* Compares the planned memory of this host's ranks with what the host has, before anything is allocated. Called twice:
 * before tokenizing, which may take long, and again once the tables of rows are in memory. */
#include "checkpoint/agree.h"
#include "launch/memory_need.h"
#include "plan/gpu_memory.h"
#include "rank/rank.h"

#include <string.h>

static bool in_processes(const ndp_rank *r) { return strcmp(ndp_transport_name(r->transport), "local") != 0; }

/* How many ranks of this host have memory that a process maps: all if they are its threads, else those that it sums or
 * gathers with, or receives messages from. */
static ndp_status count_mapped(const ndp_rank *r, int ranks, int *out) {
    ndp_mesh mesh;
    NDP_TRY(ndp_mesh_init(&r->job.layout, 0, NULL, &mesh));
    int partners = ndp_mesh_group(&mesh, NDP_GROUP_SHARD).count + ndp_mesh_group(&mesh, NDP_GROUP_REPLICATE).count +
                   ndp_mesh_group(&mesh, NDP_GROUP_TP).count + ndp_mesh_group(&mesh, NDP_GROUP_PP).count - 3;
    *out = !in_processes(r) || partners > ranks ? ranks : partners;
    return NDP_OK;
}

static ndp_status check_gpu(const ndp_rank *r, const ndp_log *log) {
    if (r->planned_gpu == 0)
        return NDP_OK;
    const ndp_gpu_memory m = ndp_gpu_memory_of(&r->job, ndp_transport_host_ranks(r->transport), r->planned_gpu);
    return ndp_gpu_memory_check(&r->job, &m, log);
}

ndp_status ndp_rank_check_memory(const ndp_rank *r) {
    static const char train[] =
        "Lower batch.micro_batch_size or data.sequence_length, set train.recompute: block, shard "
        "more (parallelism.dp_shard_size) or use more hosts",
                      forward[] = "Lower batch.micro_batch_size or data.sequence_length, shard more "
                                  "(parallelism.dp_shard_size) or use more hosts";
    int ranks = ndp_transport_host_ranks(r->transport), mapped;
    NDP_TRY(count_mapped(r, ranks, &mapped));
    bool warn = ndp_is_first(r->world) && !r->data.dataset && !r->data.held; /* once */
    const ndp_memory_need need = {.rank = r->planned,
                                  .ranks = ranks,
                                  .mapped = mapped,
                                  .shared = ranks > 1 && in_processes(r),
                                  .what = r->forward_only ? "the evaluation" : "the run",
                                  .less = r->forward_only ? forward : train};
    const ndp_log *log = warn ? &r->log : NULL;
    NDP_TRY(ndp_agree(r->world, ndp_memory_check(&need, r->job.config->train.force_memory, log)));
    return ndp_agree(r->world, check_gpu(r, log));
}
