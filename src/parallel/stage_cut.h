/* The cut of a model into pipeline stages, by the cost of its units, or as a user lists it. */
#ifndef NDP_PARALLEL_STAGE_CUT_H
#define NDP_PARALLEL_STAGE_CUT_H

#include "graph/price.h"
#include "model/model.h"
#include "parallel/recompute.h"
#include "parallel/row_cut.h"

/* Seconds of a unit for one micro-batch. The head makes its gradients in its forward, so costs are by phase. */
typedef struct ndp_unit_cost {
    double forward, input_gradient, weight_gradient;
} ndp_unit_cost;

/* Costs of all units of `whole` on a rank of `mesh`, their collectives included: out[whole->n_units]. NDP_ENOMEM,
 * NDP_EBUG. */
NDP_API ndp_status ndp_unit_costs(const ndp_model *whole, const ndp_mesh *mesh, const ndp_parallel *how,
                                  ndp_recompute recompute, const ndp_price *price, ndp_unit_cost *out);

/* The same of a unit's program, at a price. */
ndp_unit_cost ndp_unit_price(const ndp_unit_program *u, const ndp_price *price, const ndp_mesh *mesh,
                             ndp_recompute recompute);

/* Cuts a model into stages: first[stages + 1], as in ndp_stages. `layers`: the number of units between the first and
 * the last one that each of n stages has; n 0: by costs. NDP_EINVAL with the numbers, where the model has fewer such
 * units than stages, or `layers` do not add up. */
NDP_API ndp_status ndp_stage_cut(const ndp_model *whole, const ndp_unit_cost *costs, int stages, const int *layers,
                                 int n, int *first);

#endif
