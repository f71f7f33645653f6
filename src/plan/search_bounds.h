/* Lower bounds of a layout's step and memory, without its programs: what its units cost by themselves, for a cut over
 * cp, sp and tp, a micro-batch and a recompute; then the table of its schedule. Inside plan. */
#ifndef NDP_PLAN_SEARCH_BOUNDS_H
#define NDP_PLAN_SEARCH_BOUNDS_H

#include "parallel/stage_cut.h"
#include "plan/device_price.h"

/* What is chosen for a job besides its configuration. */
typedef struct ndp_plan_way {
    ndp_layout layout;
    int micro_batch, accumulation, virtual_stages;
    ndp_recompute recompute;
    bool reshard;
    ndp_pipeline_kind schedule;
} ndp_plan_way;
/* True where another layout does the same work and sends less: such are not tried. */
bool ndp_plan_way_dominated(const ndp_layout *l, int micro_batch);

/* Costs of the units of a job on one rank of cp, sp, tp and ep, which has `rows` of a micro-batch; cp and sp 1: without
 * what they add, of as many rows. Bytes are of all units together. Elements are those that shards slice; of experts
 * that ep divides, whose owners are others, apart. */
typedef struct ndp_cut_cost {
    int cp, sp, tp, ep;
    int64_t rows;
    ndp_recompute recompute;
    int64_t whole_rows; /* of a micro-batch of all ranks that cut it */
    int n_units;
    ndp_unit_cost *units; /* kernels, and communications that nothing hides; owned */
    ndp_unit_cost *rated; /* at the rates by which a job cuts its stages; owned, with `units` */
    double seconds;       /* of all of them */
    double *again;        /* of input gradients: what is computed again; with `units` */
    double *unit_held, *unit_trained, *unit_experts; /* of each; owned, with `units` */
    bool *reduced;           /* of each: its gradient is complete with its weight gradient; owned, with `units` */
    double message;          /* the fewest bytes of a value between two stages */
    double held;             /* bytes that a micro-batch keeps for its backward */
    double work;             /* of the unit that needs the most beside them, while it runs */
    double trained, experts; /* elements of parameters */
    double inner, largest, inner_all; /* of them, those of the largest buffer of the unit that has the smallest such,
                                         neither the first nor the last; of the largest such unit; of all such */
} ndp_cut_cost;

/* Seconds in which the first owner of slices transforms whole matrices in an update (search_update.c): of all units; of
 * the unit that takes the least, neither the first nor the last. */
typedef struct ndp_update_cost {
    int tp, shards;
    double all, inner;
} ndp_update_cost;

/* What was found out for bounds: costs, rates of groups, cuts into stages, and how long schedules take. */
typedef struct ndp_search_bounds {
    const ndp_dry_run *d; /* of a job that differs from candidates in what these say */
    const ndp_device_price *price;
    ndp_cut_cost **costs;
    struct ndp_group_rate *rates;
    struct ndp_pipe_time *pipes; /* by hash: `slots` of them, n_pipes in use */
    ndp_model whole;             /* of a micro-batch of `whole_rows`; 0: none */
    int64_t whole_rows;
    ndp_update_cost *updates;
    int n, n_rates, n_pipes, slots, n_updates;
    int64_t capacity, rate_capacity, update_capacity;
} ndp_search_bounds;
void ndp_search_bounds_release(ndp_search_bounds *b);

/* The cut of a candidate; with cp and sp 1 its rows stay. */
ndp_cut_cost ndp_cut_of(const ndp_job *j, const ndp_plan_way *c);
/* Finds or makes the costs of a cut, of which cp, sp, tp, rows and recompute are given. *out belongs to the
 * list. NDP_ENOMEM, NDP_EBUG. */
ndp_status ndp_cut_cost_of(ndp_search_bounds *b, const ndp_cut_cost *cut, const ndp_cut_cost **out);

/* Once some cut has costs. NDP_ENOMEM, NDP_EBUG. */
ndp_status ndp_first_update(ndp_search_bounds *b, const ndp_plan_way *c, ndp_update_cost *out);

/* What the rank of a pipeline has that keeps the most for its backward. */
typedef struct ndp_rank_held {
    double bytes, trained, experts; /* kept; elements of its parameters */
} ndp_rank_held;
/* Of the mean rank. */
ndp_rank_held ndp_mean_held(const ndp_cut_cost *u, const ndp_plan_way *c);
/* Bytes that a rank has at least which keeps so much: besides its part of weights, gradients and states. */
double ndp_least_bytes(const ndp_dry_run *d, const ndp_cut_cost *u, const ndp_plan_way *c, ndp_rank_held held);
/* Seconds that a step takes at least: the mean work of the ranks of a pipeline, their updates and half of what its ends
 * wait, or what a rank sends for weights and gradients. NDP_ENOMEM. */
ndp_status ndp_least_seconds(ndp_search_bounds *b, const ndp_cut_cost *u, const ndp_plan_way *c, double *out);
/* The same by the table of the candidate's schedule, its messages and the updates of the rank that has the fewest
 * units, less what its stages may differ; *held: of the rank that keeps the most. NDP_EINVAL: there is no such
 * schedule; NDP_ENOMEM. */
ndp_status ndp_least_pipeline(ndp_search_bounds *b, const ndp_cut_cost *u, const ndp_plan_way *c, double *seconds,
                              ndp_rank_held *held);
/* The same with gathers of weights and sums of gradients, of a pipeline that there is. NDP_ENOMEM. */
ndp_status ndp_least_step(ndp_search_bounds *b, const ndp_cut_cost *u, const ndp_plan_way *c, double *seconds);

/* What a replay of a table has besides kernels: seconds of messages, and of each unit those of a gather, of a scatter
 * and a sum of its gradient, and how long that sum holds up the next scatter. NULL: none. */
typedef struct ndp_replay_costs {
    const double *message; /* by stage: to or from the next one */
    bool reshard;          /* weights are gathered again where no run that follows soon reads them */
    const double *gather, *scatter, *sum, *queue;
} ndp_replay_costs;
/* The seconds of a table whose stages begin with the units `first` (search_replay.c). NDP_ENOMEM. */
ndp_status ndp_replay_units(const ndp_pipeline *p, const ndp_cut_cost *u, const int *first, const ndp_replay_costs *c,
                            double *seconds);

#endif
