/* Compares the planned memory of this host's ranks with what the host has, before anything is allocated. Called twice:
 * before tokenizing, which may take long, and again once the tables of rows are in memory. */
#include "checkpoint/agree.h"
#include "host/memory_need.h"
#include "train/trainer.h"

#include <string.h>

static bool in_processes(const ndp_trainer *t) { return strcmp(ndp_transport_name(t->transport), "local") != 0; }

/* How many ranks of this host have memory that a process maps: all if they are its threads, else those that it sums or
 * gathers with. */
static int count_mapped(const ndp_trainer *t, int ranks) {
    const int *size = t->job.layout.size;
    int partners = size[NDP_DP_SHARD] * size[NDP_CP] * size[NDP_SP] + size[NDP_DP_REPLICATE] + size[NDP_TP] - 2;
    return !in_processes(t) || partners > ranks ? ranks : partners;
}

ndp_status ndp_trainer_check_memory(const ndp_trainer *t) {
    static const char train[] =
        "Lower batch.micro_batch_size or data.sequence_length, set train.recompute: block, shard "
        "more (parallelism.dp_shard_size) or use more hosts",
                      forward[] = "Lower batch.micro_batch_size or data.sequence_length, shard more "
                                  "(parallelism.dp_shard_size) or use more hosts";
    int ranks = ndp_transport_node_ranks(t->transport);
    bool warn = ndp_is_first(t->world) && !t->data.dataset && !t->data.held; /* once */
    const ndp_memory_need need = {.rank = t->planned,
                                  .ranks = ranks,
                                  .mapped = count_mapped(t, ranks),
                                  .shared = ranks > 1 && in_processes(t),
                                  .what = t->forward_only ? "the evaluation" : "the run",
                                  .less = t->forward_only ? forward : train};
    return ndp_agree(t->world, ndp_memory_check(&need, t->job.config->train.force_memory, warn ? &t->log : NULL));
}
