/* What a run needs to know before it allocates anything, from the programs of its ranks: their memory (dry_run.c), and
 * that they are right (plan_check.c). */
#ifndef NDP_PLAN_JOB_MEMORY_H
#define NDP_PLAN_JOB_MEMORY_H

#include "job/job.h"

/* Bytes that an engine's program needs. */
typedef struct ndp_engine_memory {
    int64_t device; /* what its device works on */
    int64_t pinned; /* of the host, for communication (step/staging.h) */
    int64_t host;   /* the part of both that is memory of the host */
} ndp_engine_memory;
ndp_engine_memory ndp_engine_memory_of(const ndp_engine *e);

/* What one rank needs, of `node_ranks` on its node: for training and held-out rows, or with `forward_only` for held-out
 * rows only. Allocates no arenas and opens no files. `split_place`: of sums (device/device.h). */
NDP_API ndp_status ndp_job_rank_needs(const ndp_job *j, int rank, int node_ranks, int split_place, bool forward_only,
                                      ndp_engine_memory *out);
/* The host's memory of one rank, of `node_ranks` on its node, in bytes: for training and held-out rows, or with
 * `forward_only` for held-out rows only. Allocates no arenas and opens no files. `split_place`: of sums
 * (device/device.h). */
NDP_API ndp_status ndp_job_rank_memory(const ndp_job *j, int rank, int node_ranks, int split_place, bool forward_only,
                                       int64_t *bytes);
/* The mean over the ranks of that rank's node, rounded up: stages of a pipeline differ. */
NDP_API ndp_status ndp_job_node_memory(const ndp_job *j, int rank, int node_ranks, int split_place, bool forward_only,
                                       int64_t *bytes);
/* The same for all ranks together, on one node. */
NDP_API ndp_status ndp_job_memory(const ndp_job *j, int split_place, int64_t *bytes);

/* Proves the programs of the ranks that stand for all, for training and for held-out rows, or for those only: what
 * `plan` checks. Before a run's first step, on one of its ranks. NDP_EBUG, NDP_ENOMEM. */
NDP_API ndp_status ndp_job_prove(const ndp_job *j, int node_ranks, bool forward_only);

#endif
