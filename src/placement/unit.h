/* Inside the placement room: proving the lists of a unit.
 *
 * A list is judged under a contract, the same for all units that share a graph, so once for each graph and place on pp:
 *   before  INPUT holds the complete output of the unit before; GRAD_OUTPUT the complete gradient of OUTPUT; PARAM
 *           slots whole gathered buffers; DATA the rows that the claims say; SAVED, SAVED_INPUT what this unit's
 *           FORWARD, or RECOMPUTE, left there; BETWEEN what its BACKWARD_INPUT left;
 *   after   OUTPUT and GRAD_INPUT are complete, cut as INPUT of the next unit is; PGRAD slots have had contributions
 *           added, whose shares `made` says.
 * The step level proves that the contract's first half holds at each RUN. */
#ifndef NDP_PLACEMENT_UNIT_H
#define NDP_PLACEMENT_UNIT_H

#include "placement/lanes.h"
#include "placement/share.h"

/* What a list adds to elements [first, first + count) of a buffer's gradient (places in the flat buffer of the lane).
 */
typedef struct ndp_contribution {
    int slot, segment;
    int64_t first, count;
    ndp_share share; /* of the sum over this micro-batch of one (pp, dp) place: its rows, heads and uses in the unit */
    int pgrad;       /* bit of the accumulate mask by which `=` becomes `+=`; NDP_NONE: see `adds` */
    bool adds;       /* pgrad NDP_NONE: += in any case */
} ndp_contribution;

/* The sums that lists add to, inputs of the engine. */
typedef enum ndp_made_sum { NDP_MADE_LOSS, NDP_MADE_ROUTERS, NDP_MADE_LOADS, NDP_MADE_SUMS } ndp_made_sum;
typedef struct ndp_sum_made {
    ndp_share share; /* of that of a micro-batch; 0: nothing */
    bool adds;       /* += rather than = */
} ndp_sum_made;

typedef struct ndp_unit_made {
    ndp_contribution *items; /* ascending by slot and place; disjoint */
    int n;
    ndp_sum_made sums[NDP_MADE_SUMS];
} ndp_unit_made;

typedef struct ndp_units ndp_units;

/* Proves all lists of all graphs at all places on pp. `w`: sees what they make (unit_trial.h); {0}: nothing does. */
typedef struct ndp_units_watcher ndp_units_watcher;
ndp_status ndp_units_prove(const ndp_lanes *l, const ndp_units_watcher *w, ndp_units **out);
void ndp_units_release(ndp_units *u);

/* What a phase of a graph makes on a lane. */
const ndp_unit_made *ndp_units_made(const ndp_units *u, int lane, int graph, ndp_phase phase);

/* A segment's gradient is a sum over the units that use it: the weight of unit `unit` (number in the whole model) for a
 * segment of its slot. They sum to 1; 0: the unit makes no gradient of it. */
ndp_share ndp_use_weight(const ndp_units *u, int unit, int slot, int segment);

#endif
