/* A plan scaled by a measured run of the same stack: what the run's steps took, and what the plan of them says. Inside
 * plan. */
#ifndef NDP_PLAN_ANCHOR_H
#define NDP_PLAN_ANCHOR_H

#include "plan/step_time.h"

typedef struct ndp_plan_anchor {
    double measured, planned; /* seconds a step */
    char note[384];           /* what could not be compared; "": nothing */
} ndp_plan_anchor;

/* Reads the run folder o->anchor, and plans its job on the devices of o->cluster, of which it gets as many nodes as it
 * needs. `c`: the job that is to be planned. NDP_EINVAL, before anything is built: the folder is no run's; the run has
 * another model, device (by its name, where run.json and the cluster have one) or precision, or too few measured steps.
 */
NDP_API ndp_status ndp_plan_anchor_read(const ndp_config *c, const ndp_plan_opts *o, ndp_plan_anchor *out);

#endif
