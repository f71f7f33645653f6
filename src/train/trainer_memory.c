/* Compares the planned memory of this host's ranks with what the host has, before anything is allocated. Called twice:
 * before tokenizing, which may take long, and again once the tables of rows are in memory. */
#include "checkpoint/agree.h"
#include "host/memory_need.h"
#include "train/trainer.h"

#include <string.h>

static bool in_processes(const ndp_trainer *t) { return strcmp(ndp_transport_name(t->transport), "local") != 0; }

/* How many ranks of this host have memory that a process maps: all if they are its threads, else those that it sums or
 * gathers with, or receives messages from. */
static ndp_status count_mapped(const ndp_trainer *t, int ranks, int *out) {
    ndp_mesh mesh;
    NDP_TRY(ndp_mesh_init(&t->job.layout, 0, NULL, &mesh));
    int partners = ndp_mesh_group(&mesh, NDP_GROUP_SHARD).count + ndp_mesh_group(&mesh, NDP_GROUP_REPLICATE).count +
                   ndp_mesh_group(&mesh, NDP_GROUP_TP).count + ndp_mesh_group(&mesh, NDP_GROUP_PP).count - 3;
    *out = !in_processes(t) || partners > ranks ? ranks : partners;
    return NDP_OK;
}

ndp_status ndp_trainer_check_memory(const ndp_trainer *t) {
    static const char train[] =
        "Lower batch.micro_batch_size or data.sequence_length, set train.recompute: block, shard "
        "more (parallelism.dp_shard_size) or use more hosts",
                      forward[] = "Lower batch.micro_batch_size or data.sequence_length, shard more "
                                  "(parallelism.dp_shard_size) or use more hosts";
    int ranks = ndp_transport_node_ranks(t->transport), mapped;
    NDP_TRY(count_mapped(t, ranks, &mapped));
    bool warn = ndp_is_first(t->world) && !t->data.dataset && !t->data.held; /* once */
    const ndp_memory_need need = {.rank = t->planned,
                                  .ranks = ranks,
                                  .mapped = mapped,
                                  .shared = ranks > 1 && in_processes(t),
                                  .what = t->forward_only ? "the evaluation" : "the run",
                                  .less = t->forward_only ? forward : train};
    return ndp_agree(t->world, ndp_memory_check(&need, t->job.config->train.force_memory, warn ? &t->log : NULL));
}
