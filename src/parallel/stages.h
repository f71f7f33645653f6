/* Pipeline stages: which units of the model each rank of the axis pp computes.
 *
 * A stage is a range of consecutive units. With virtual stages a rank has several, which need not be neighbours; the
 * local model of a rank (apply.h) has the units of its stages only, in the order of the whole model. Activations travel
 * from the last unit of a stage to the first of the next, gradients the other way. */
#ifndef NDP_PARALLEL_STAGES_H
#define NDP_PARALLEL_STAGES_H

#include "mesh/mesh.h"
#include "model/model.h"

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

/* True if several ranks of pp hold a buffer of the whole model; pair: the coordinates of the first two in the order of
 * its units, the smaller one first. *more: there are others. */
bool ndp_stages_pair(const ndp_model *whole, const ndp_stages *s, int buffer, int pair[2], bool *more);

/* The pairs of ranks that hold tied tables, for the facts of their mesh. NDP_ENOTSUP: more than two ranks use a table,
 * or there are more than NDP_TIES pairs. */
NDP_API ndp_status ndp_stages_ties(const ndp_model *whole, const ndp_stages *s, ndp_ties *out);

#endif
