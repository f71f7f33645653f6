/* How much a rank holds by the table of a schedule, counted anew. */
#ifndef NDP_TESTS_PIPELINE_HELD_H
#define NDP_TESTS_PIPELINE_HELD_H

#include "pipeline/pipeline.h"

/* What a rank holds at most, in micro-batches of one stage (divided by the virtual stages: in micro-batches of the
 * rank). One counts from its forward to the end of its input gradient, and `kept` of it from there to the end of its
 * weight gradient. */
static inline double pipeline_held(const ndp_pipeline *s, int rank, double kept) {
    const ndp_pipeline_row *row = &s->rows[rank];
    double most = 0;
    int held = 0, pending = 0;
    for (const ndp_stage_action *a = row->actions; a < row->actions + row->n; a++) {
        held += a->action == NDP_ACTION_FORWARD;
        held -= a->action == NDP_ACTION_BACKWARD || a->action == NDP_ACTION_INPUT_GRADIENT;
        pending += a->action == NDP_ACTION_INPUT_GRADIENT;
        pending -= a->action == NDP_ACTION_WEIGHT_GRADIENT;
        double now = held + kept * pending;
        most = now > most ? now : most;
    }
    return most;
}

#endif
