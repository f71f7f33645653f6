/* batch.micro_batch_size auto: of the micro-batches that divide a data rank's samples, the largest whose programs fit
 * the memory that there is, or on a cluster the fastest of those that fit. Found by building the programs that would
 * run; no step is tried. */
#ifndef NDP_PLAN_MICRO_BATCH_H
#define NDP_PLAN_MICRO_BATCH_H

#include "launch/memory_need.h"
#include "plan/plan_report.h"

/* A micro-batch that was tried. */
typedef struct ndp_rows_trial {
    bool fits;
    ndp_memory_lack lack; /* it does not */
    double seconds;       /* of a step; 0: not asked */
} ndp_rows_trial;
/* `j`: the job with that micro-batch. */
typedef ndp_status ndp_try_rows(void *user, const ndp_job *j, ndp_rows_trial *out);

/* Makes `j`, whose micro-batch is auto, the job of the largest micro-batch that fits; the smallest if none does, which
 * the caller refuses as it does any other. `own` becomes its configuration, which the caller releases after the job, be
 * it that this fails. Collective where `try` is: ranks that have the same job try the same. *fits may be NULL. */
NDP_API ndp_status ndp_choose_rows(ndp_job *j, ndp_try_rows *try, void *user, ndp_config *own, bool *fits);

/* Chooses as a plan compares memory: with that of this machine, or as the fastest on the cluster. A job whose
 * micro-batch is a number stays. `own`: as above. NDP_EINVAL: nothing says what memory a GPU has. */
ndp_status ndp_plan_choose_rows(ndp_job *j, const ndp_plan_opts *o, ndp_config *own);

#endif
