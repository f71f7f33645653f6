/* Steps in a row, each submitted while the one before it runs, as in training: a device with a queue does not idle
 * between them. */
#ifndef BENCH_ROW_H
#define BENCH_ROW_H

#include "base/clock.h"
#include "step/engine.h"

/* Loads the micro-batches of a step. */
typedef ndp_status row_load(ndp_engine *e, void *user, int step);

/* Steps `first` to `first` + n - 1. *seconds: a step, from the end of step `first`, which a device without queues
 * reaches as it submits it, to the end of the last. n >= 2. */
static inline ndp_status row_of_steps(ndp_engine *e, row_load *load, void *user, int first, int n, double *seconds,
                                      ndp_step_result *last) {
    bool at_once = ndp_engine_program(e)->opts.step.exec->device->host_memory;
    double start = 0;
    for (int i = 0; i < n; i++) {
        double begun = ndp_now();
        NDP_TRY(load(e, user, first + i));
        NDP_TRY(ndp_engine_submit(e, &(ndp_step_input){.lr = 1e-4, .update = first + i, .update_weights = true}));
        if (i > 0)
            NDP_TRY(ndp_engine_result(e, last));
        if (i == 1)
            start = at_once ? begun : ndp_now();
    }
    NDP_TRY(ndp_engine_result(e, last));
    *seconds = (ndp_now() - start) / (n - 1);
    return NDP_OK;
}

/* Step `first` + 1 with the time of each op in the engine's profile, submitted while step `first` runs. */
static inline ndp_status row_of_ops(ndp_engine *e, row_load *load, void *user, int first) {
    ndp_step_result r;
    for (int i = 0; i < 2; i++) {
        NDP_TRY(load(e, user, first + i));
        if (i == 1)
            NDP_TRY(ndp_engine_profile_reset(e, true));
        NDP_TRY(ndp_engine_submit(e, &(ndp_step_input){.lr = 1e-4, .update = first + i, .update_weights = true}));
    }
    NDP_TRY(ndp_engine_result(e, &r));
    return ndp_engine_result(e, &r);
}

#endif
