/* The memory of a job's GPUs, compared with what its ranks need there before anything is allocated. */
#ifndef NDP_PLAN_GPU_MEMORY_H
#define NDP_PLAN_GPU_MEMORY_H

#include "base/log.h"
#include "job/job.h"

typedef struct ndp_gpu_memory {
    int64_t rank; /* bytes that one rank needs on its GPU */
    int ranks;    /* that share it */
    int64_t has;  /* bytes: train.gpu_memory, else what is free on this machine's first GPU; 0: not known */
    bool stated;  /* by train.gpu_memory */
} ndp_gpu_memory;

/* For `per_node` ranks on a node. A machine without a GPU leaves `has` 0, and so does a device on the host's memory. */
ndp_gpu_memory ndp_gpu_memory_of(const ndp_job *j, int per_node, int64_t rank_bytes);
/* Bytes that the ranks of one GPU need, with what CUDA takes for itself where `has` does not leave that out. */
int64_t ndp_gpu_memory_need(const ndp_gpu_memory *m);
/* Appends the reason, with all numbers, and returns true if it is known that they do not fit. */
bool ndp_gpu_memory_lacks(const ndp_gpu_memory *m, ndp_str *why);
/* NDP_EINVAL if they do not fit; with train.force_memory only a warning to `log` (NULL: none). */
ndp_status ndp_gpu_memory_check(const ndp_job *j, const ndp_gpu_memory *m, const ndp_log *log);

#endif
