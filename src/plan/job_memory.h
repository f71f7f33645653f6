/* What a run needs to know before it allocates anything, from the programs of its ranks: their memory (dry_run.c), and
 * that they are right (plan_check.c). */
#ifndef NDP_PLAN_JOB_MEMORY_H
#define NDP_PLAN_JOB_MEMORY_H

#include "job/job.h"
#include "launch/memory_need.h"

/* Bytes that an engine's program needs. */
typedef struct ndp_engine_memory {
    int64_t device; /* what its device works on */
    int64_t pinned; /* of the host, for communication (step/staging.h) */
    int64_t host;   /* the part of both that is memory of the host */
    int64_t copy;   /* of the host besides, for background saves (ndp_job_copies); 0: none */
} ndp_engine_memory;
ndp_engine_memory ndp_engine_memory_of(const ndp_engine *e);

/* What a rank's program depends on besides the job. */
typedef struct ndp_program_place {
    int node_ranks;    /* ranks that may share memory (ndp_transport_node_ranks) */
    int threads;       /* of a rank (ndp_job_threads) */
    int split_place;   /* of sums (device/device.h) */
    bool forward_only; /* a run with held-out rows only; else with training, and held-out rows if the job has some */
} ndp_program_place;

/* Whether saves of a run may be written while its steps go on (checkpoint.async), which takes a copy of what ranks
 * save.
 */
bool ndp_job_copies(const ndp_job *j);

/* What one rank needs. Allocates no arenas and opens no files. */
NDP_API ndp_status ndp_job_rank_needs(const ndp_job *j, int rank, const ndp_program_place *at, ndp_engine_memory *out);
/* The host's memory of one rank: the mean of several, rounded up. Stages of a pipeline differ, and only ranks of the
 * first replica save. */
typedef struct ndp_mean_memory {
    int64_t programs, copy;
} ndp_mean_memory;
/* The part that a run cannot do without. */
int64_t ndp_mean_memory_least(const ndp_job *j, const ndp_mean_memory *m);
/* Of `n` ranks, in ascending order. */
NDP_API ndp_status ndp_job_ranks_memory(const ndp_job *j, const int *ranks, int n, const ndp_program_place *at,
                                        ndp_mean_memory *out);
/* The same for training, where each node has `node_ranks` ranks in order, of those on the node of `rank`. */
NDP_API ndp_status ndp_job_node_memory(const ndp_job *j, int rank, int node_ranks, ndp_mean_memory *out);
/* The same for all ranks together, on one node, in all. */
NDP_API ndp_status ndp_job_memory(const ndp_job *j, int split_place, int64_t *bytes);

/* What `ranks` of a host need, `bytes` each, as processes or as threads of one. `running`: one of them asks; else a
 * plan does, which has the same answer. */
ndp_status ndp_job_memory_need(const ndp_job *j, int ranks, int64_t bytes, bool threads, bool running,
                               ndp_memory_need *out);

/* Proves the programs of the ranks that stand for all, for training and for held-out rows, or for those only: what
 * `plan` checks. Before a run's first step, on one of its ranks. NDP_EBUG, NDP_ENOMEM. */
NDP_API ndp_status ndp_job_prove(const ndp_job *j, const ndp_program_place *at);

#endif
