/* Inside plan: programs of ranks that are not this process (plan.c), and the check of a whole world (plan_check.c). */
#ifndef NDP_TRAIN_PLAN_PARTS_H
#define NDP_TRAIN_PLAN_PARTS_H

#include "train/job.h"

/* Builds the program of one rank on the null device. */
ndp_status ndp_plan_engine(const ndp_job *j, const ndp_model *m, int rank, int per_node, ndp_engine **out);

/* Builds the programs of the ranks that stand for all, checks them against each other, and appends what the stages of a
 * pipeline have and need, and what was checked. NDP_EBUG, NDP_ENOMEM. */
ndp_status ndp_plan_check(const ndp_job *j, const ndp_model *m, int per_node, ndp_str *out);

#endif
