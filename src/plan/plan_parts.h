/* Inside plan: programs of ranks that do not run (dry_run.c), and the check of a whole world (plan_check.c). */
#ifndef NDP_PLAN_PLAN_PARTS_H
#define NDP_PLAN_PLAN_PARTS_H

#include "plan/job_memory.h"

/* How the programs of a job's ranks are built: for its device, which executes nothing. Stays where it was initialised:
 * `exec` has the address of `device`. */
typedef struct ndp_dry_run {
    const ndp_job *job;
    int per_node; /* ranks */
    ndp_device device;
    ndp_exec exec;
} ndp_dry_run;

/* NDP_ENOTSUP: the job's device is not built. */
ndp_status ndp_dry_run_init(ndp_dry_run *d, const ndp_job *j, int per_node, int split_place);

/* Builds the program of one rank. */
ndp_status ndp_plan_engine(const ndp_dry_run *d, const ndp_model *m, int rank, ndp_engine **out);

/* What a rank needs for forward passes over held-out rows, in addition to `trained` (NULL: with its own weights);
 * nothing if the job holds nothing out. */
ndp_status ndp_plan_score(const ndp_dry_run *d, int rank, const ndp_engine *trained, ndp_engine_memory *out);

/* Builds the programs of the ranks that stand for all, checks them against each other, and appends what the stages of a
 * pipeline have and need, and what was checked. `timeline`: also simulates a step and writes it there; NULL: no.
 * NDP_EBUG, NDP_ENOMEM, NDP_EIO. */
ndp_status ndp_plan_check(const ndp_dry_run *d, const ndp_model *m, const char *timeline, ndp_str *out);

#endif
