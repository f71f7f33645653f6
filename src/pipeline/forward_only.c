/* Forwards alone: in each unit of time every rank runs the latest of its stages that has a micro-batch ready. Some
 * stage always has one while any is left, so the order does not deadlock, on whatever ranks the stages are. */
#include "pipeline/pipeline.h"

#include "pipeline/row.h"
#include <stdlib.h>
#include <string.h>

/* One unit of time. `done`: micro-batches of each stage. Returns how many actions ran. */
static int run_a_unit(ndp_pipeline *s, int *done, bool *busy) {
    int ran = 0;
    memset(busy, 0, (size_t)s->ranks * sizeof *busy);
    /* Downwards, so that the work before a stage is of earlier units. */
    for (int stage = s->stages - 1; stage >= 0; stage--) {
        int rank = s->rank_of[stage];
        if (busy[rank] || done[stage] == (stage ? done[stage - 1] : s->micro_batches))
            continue;
        busy[rank] = true;
        ndp_pipeline_row *row = &s->rows[rank];
        row->actions[row->n] = (ndp_stage_action){
            .stage = stage, .micro_batch = done[stage]++, .action = NDP_ACTION_FORWARD, .column = row->n};
        row->n++;
        ran++;
    }
    return ran;
}

ndp_status ndp_pipeline_forward(const ndp_pipeline *map, int micro_batches, ndp_pipeline *out) {
    NDP_CHECK(micro_batches >= 1 && micro_batches <= NDP_MOST_MICRO_BATCHES,
              "a forward of %d micro-batches through the stages of %s: micro-batches are 1 to %d", micro_batches,
              map->name, (int)NDP_MOST_MICRO_BATCHES);
    ndp_pipeline s;
    int most = 0, *held = calloc((size_t)map->ranks, sizeof *held), *done = calloc((size_t)map->stages, sizeof *done);
    bool *busy = malloc((size_t)map->ranks * sizeof *busy);
    for (int stage = 0; held && stage < map->stages; stage++) {
        int n = ++held[map->rank_of[stage]]; /* stages of its rank */
        most = n > most ? n : most;
    }
    ndp_status st = held && done && busy
                        ? ndp_pipeline_init(map->name, map->ranks, map->stages, micro_batches,
                                            (size_t)most * (size_t)micro_batches, &s)
                        : NDP_FAIL(NDP_ENOMEM, "not enough memory for the forwards of %d stages", map->stages);
    if (st == NDP_OK) {
        memcpy(s.rank_of, map->rank_of, (size_t)s.stages * sizeof *s.rank_of);
        while (run_a_unit(&s, done, busy) > 0)
            ;
        *out = s;
    }
    free(busy);
    free(held);
    free(done);
    return st;
}
