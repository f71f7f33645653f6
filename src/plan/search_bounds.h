/* Lower bounds of a layout's step and memory, without its programs: what its units cost by themselves, for a cut over
 * cp, sp and tp, a micro-batch and a recompute; then the table of its schedule. Inside plan. */
#ifndef NDP_PLAN_SEARCH_BOUNDS_H
#define NDP_PLAN_SEARCH_BOUNDS_H

#include "parallel/stage_cut.h"
#include "plan/device_price.h"

/* What is chosen for a job besides its configuration. */
typedef struct ndp_candidate {
    ndp_layout layout;
    int micro_batch, accumulation, virtual_stages;
    ndp_recompute recompute;
    bool reshard;
    ndp_pipeline_kind schedule;
} ndp_candidate;

/* Costs of the units of a job on one rank of a cut, for a micro-batch. Bytes are of all units together. */
typedef struct ndp_cut_cost {
    int tp, cp, sp, micro_batch;
    ndp_recompute recompute;
    int n_units;
    ndp_unit_cost *units;   /* of kernels alone; owned */
    double held;            /* bytes that a micro-batch keeps for its backward */
    double work;            /* of the unit that needs the most beside them, while it runs */
    double trained, frozen; /* elements of parameters */
} ndp_cut_cost;

/* Costs of the cuts that were asked for. */
typedef struct ndp_cut_costs {
    ndp_cut_cost *items;
    int n;
    int64_t capacity;
} ndp_cut_costs;
void ndp_cut_costs_release(ndp_cut_costs *c);

/* Finds or makes the costs of a candidate's cut; `d` is of a job that differs from it in what a candidate says. *out
 * belongs to the list, until the next call. NDP_ENOMEM, NDP_EBUG. */
ndp_status ndp_cut_cost_of(ndp_cut_costs *all, const ndp_dry_run *d, const ndp_device_price *price,
                           const ndp_candidate *c, const ndp_cut_cost **out);

/* Bytes that the first rank of the candidate has at least: its part of weights, gradients, states and kept values. */
double ndp_least_bytes(const ndp_job *j, const ndp_cut_cost *u, const ndp_candidate *c);
/* Seconds that a step takes at least: the mean work of the ranks of a pipeline. */
double ndp_least_seconds(const ndp_cut_cost *u, const ndp_candidate *c);
/* The same of the candidate's job, by its schedule, and by what a rank sends for weights and gradients. */
ndp_status ndp_least_pipeline(const ndp_job *j, const ndp_cut_cost *u, double *seconds);
ndp_status ndp_least_sent(const ndp_device_price *p, const ndp_job *j, const ndp_cut_cost *u, const ndp_candidate *c,
                          double *seconds);

#endif
