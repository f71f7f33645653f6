/* Recomputing activations: which units keep nothing in the forward, or little, and run it again before their backward.
 */
#ifndef NDP_PARALLEL_RECOMPUTE_H
#define NDP_PARALLEL_RECOMPUTE_H

#include "graph/lower.h"

/* Block: from the input of a unit. Selective: also from what graph/kept.h chooses. */
typedef enum ndp_recompute { NDP_RECOMPUTE_NONE, NDP_RECOMPUTE_BLOCK, NDP_RECOMPUTE_SELECTIVE } ndp_recompute;

/* True when running the unit's forward again frees memory: it saves more than it gets (an embedding saves nothing, a
 * loss head makes its gradients in the forward). */
static inline bool ndp_recompute_pays(const ndp_unit_program *u) {
    return u->saved_bytes + u->saved_input_bytes > 0 && u->input_bytes > 0 && u->output_bytes > 0;
}

#endif
