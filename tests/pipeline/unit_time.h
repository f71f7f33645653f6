/* Tables for tests, and their replay with equal stages: F, I and W are the times of a rank for one micro-batch, all its
 * stages together. */
#ifndef NDP_TESTS_PIPELINE_UNIT_TIME_H
#define NDP_TESTS_PIPELINE_UNIT_TIME_H

#include "check.h"
#include "pipeline/pipeline.h"

#include <stdlib.h>

static inline ndp_pipeline make(ndp_pipeline_kind kind, int p, int v, int m) {
    ndp_pipeline s;
    CHECK_OK(ndp_pipeline_make(kind, p, v, m, &s));
    return s;
}

/* `cost`: F, I and W. */
static inline ndp_pipeline_times replay(const ndp_pipeline *s, const double cost[3], double message) {
    double *costs[3];
    for (int c = 0; c < 3; c++) {
        costs[c] = malloc((size_t)s->stages * sizeof **costs);
        for (int stage = 0; stage < s->stages; stage++)
            costs[c][stage] = cost[c] * s->ranks / s->stages;
    }
    ndp_pipeline_times t;
    CHECK_OK(ndp_pipeline_replay(s, &(ndp_pipeline_costs){costs[0], costs[1], costs[2], message}, &t));
    for (int c = 0; c < 3; c++)
        free(costs[c]);
    return t;
}

#endif
