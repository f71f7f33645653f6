/* What ranks need of a GPU, and what it has. */
#include "plan/gpu_memory.h"

#include "cluster/cluster.h"
#include "ops/devices.h"

/* What is free on the GPU of a node's first rank, and how many GPUs the node has, at most `most`. 0: there is none. */
static int64_t measure(const ndp_device *d, int most, int *gpus) {
    size_t free_bytes = 0, total = 0;
    ndp_device_context *c = NULL;
    ndp_status st = NDP_EINVAL;
    for (*gpus = most + 1; st != NDP_OK && --*gpus > 0;)
        st = d->open(d, &(ndp_device_opts){.node_ranks = *gpus}, &c);
    if (st == NDP_OK)
        st = d->memory(c, &free_bytes, &total);
    if (c)
        d->close(c);
    return st == NDP_OK ? (int64_t)free_bytes : 0;
}

ndp_gpu_memory ndp_gpu_memory_of(const ndp_job *j, int per_node, int64_t rank_bytes) {
    const ndp_config *c = j->config;
    const ndp_device *d;
    ndp_gpu_memory m = {.rank = rank_bytes, .ranks = c->train.share_gpu ? per_node : 1};
    ndp_device plan;
    if (ndp_device_find_plan(ndp_device_names[c->train.device], &plan) == NDP_OK && plan.host_memory)
        return m;
    m.stated = c->train.gpu_memory > 0;
    if (m.stated) {
        m.has = (int64_t)(c->train.gpu_memory * (1 << 30));
    } else if (ndp_device_find(ndp_device_names[c->train.device], &d) == NDP_OK) {
        int gpus;
        m.has = measure(d, per_node, &gpus);
        if (c->train.share_gpu && gpus > 0)
            m.ranks = (per_node + gpus - 1) / gpus;
    }
    ndp_error_set(NDP_OK, ""); /* a plan needs no GPU */
    return m;
}

int64_t ndp_gpu_memory_need(const ndp_gpu_memory *m) {
    return m->ranks * m->rank + (m->stated ? NDP_CUDA_RUNTIME_BYTES : 0);
}

bool ndp_gpu_memory_lacks(const ndp_gpu_memory *m, ndp_str *why) {
    char need[16], rank[16], has[16];
    if (m->has == 0 || ndp_gpu_memory_need(m) <= m->has)
        return false;
    ndp_str_addf(why, "%d rank%s of %s need%s %s of a GPU%s, which has %s (%s)", m->ranks, m->ranks == 1 ? "" : "s",
                 ndp_human_bytes((double)m->rank, rank), m->ranks == 1 ? "s" : "",
                 ndp_human_bytes((double)ndp_gpu_memory_need(m), need), m->stated ? " with CUDA's own" : "",
                 ndp_human_bytes((double)m->has, has), m->stated ? "train.gpu_memory" : "free on this machine's GPU");
    return true;
}

ndp_status ndp_gpu_memory_check(const ndp_job *j, const ndp_gpu_memory *m, const ndp_log *log) {
    ndp_str why = {0};
    ndp_status st = NDP_OK;
    bool lacks = ndp_gpu_memory_lacks(m, &why);
    if (lacks && !j->config->train.force_memory)
        st =
            NDP_FAIL(NDP_EINVAL,
                     "%s. Lower batch.micro_batch_size or data.sequence_length, set train.recompute: block, shard more "
                     "(parallelism.dp_shard_size), or start anyway with --force-memory",
                     why.data ? why.data : "");
    else if (lacks && log)
        ndp_warn(log, "%s; starting anyway (--force-memory)", why.data ? why.data : "");
    ndp_str_release(&why);
    return st;
}
