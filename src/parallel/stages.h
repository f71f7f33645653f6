/* Pipeline stages: which units of the model each rank of the axis pp computes.
 *
 * A stage is a range of consecutive units. With virtual stages a rank has several, which need not be neighbours; the
 * local model of a rank (apply.h) has the units of its stages only, in the order of the whole model. Activations travel
 * from the last unit of a stage to the first of the next, gradients the other way. */
#ifndef NDP_PARALLEL_STAGES_H
#define NDP_PARALLEL_STAGES_H

#include "model/model.h"
#include "parallel/row_cut.h"

typedef struct ndp_stages {
    int n;              /* 0: one stage on one rank, of all units */
    const int *first;   /* by stage, n + 1 entries: its first unit in the whole model; the last entry is their number */
    const int *rank_of; /* by stage: the coordinate on pp of its rank */
} ndp_stages;

/* The stage of a unit of the whole model. */
static inline int ndp_stage_of(const ndp_stages *s, int unit) {
    int stage = 0;
    while (stage + 1 < s->n && s->first[stage + 1] <= unit)
        stage++;
    return stage;
}

/* True if rank `pp` of the axis computes that unit of the whole model. */
static inline bool ndp_stages_have(const ndp_stages *s, int pp, int unit) {
    return s->n == 0 || s->rank_of[ndp_stage_of(s, unit)] == pp;
}

/* Seconds of a unit for one micro-batch, as counts of operations over fixed rates: relative to each other. The head
 * makes its gradients in its forward, so costs are by phase. */
typedef struct ndp_unit_cost {
    double forward, input_gradient, weight_gradient;
} ndp_unit_cost;

/* Costs of all units of `whole` on a rank of `mesh`: out[whole->n_units]. NDP_ENOMEM, NDP_EBUG. */
NDP_API ndp_status ndp_unit_costs(const ndp_model *whole, const ndp_mesh *mesh, const ndp_parallel *how, bool recompute,
                                  ndp_unit_cost *out);

/* Cuts a model into stages: first[stages + 1], as in ndp_stages. `layers`: the number of units between the first and
 * the last one that each of n stages has; n 0: by costs. NDP_EINVAL with the numbers, where the model has fewer such
 * units than stages, or `layers` do not add up. */
NDP_API ndp_status ndp_stage_cut(const ndp_model *whole, const ndp_unit_cost *costs, int stages, const int *layers,
                                 int n, int *first);

#endif
