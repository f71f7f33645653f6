/* The order in which lanes run: each until it waits for one that has not come as far. What a lane reads of others it
 * gets by collectives and messages alone, so any order that does not stop shows the same. */
#include "placement/step_lanes.h"

static ndp_status execute(ndp_step_lane *l) {
    l->again = false;
    if (l->instr->code == NDP_DO_RUN)
        return ndp_step_run(l);
    switch (l->instr->call.kind) {
    case NDP_CALL_BEGIN:
        return ndp_step_begin(l);
    case NDP_CALL_WAIT:
        return ndp_step_wait(l);
    default:
        return ndp_step_kernel(l);
    }
}

/* Runs a lane until it waits; *moved: it has come further. */
static ndp_status advance(ndp_step_lane *l, bool *moved) {
    while (!l->over) {
        if (!l->again) {
            l->over = !ndp_program_next(l->program, l->world->visits, &l->walk);
            l->instr = l->over ? NULL : &l->program->instrs[l->walk.at];
        }
        if (l->over)
            return ndp_step_end(l);
        NDP_TRY(execute(l));
        if (l->again)
            return NDP_OK;
        *moved = true;
    }
    return NDP_OK;
}

static ndp_status run_all(ndp_step_world *w) {
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < w->lanes->n; i++)
            NDP_TRY(advance(&w->items[i], &moved));
    }
    for (int i = 0; i < w->lanes->n; i++)
        if (!w->items[i].over)
            return ndp_step_refuse(&w->items[i], "waits forever");
    NDP_TRY(ndp_step_others_check(w));
    return ndp_step_windows(w);
}

/* Two iterations of the range that all lanes repeat, if they repeat one for the same micro-batches (check.c). */
static ndp_visits visits_of(const ndp_lanes *l) {
    int64_t least = INT64_MAX;
    const ndp_repeats *first = &l->items[0].program->repeats;
    for (int i = 0; i < l->n; i++) {
        const ndp_repeats *r = &l->items[i].program->repeats;
        if (r->n != 1 || r->items[0].micro_batches != first->items[0].micro_batches)
            return NDP_ALL_ITERATIONS;
        least = r->items[0].times < least ? r->items[0].times : least;
    }
    return least > 2 ? (ndp_visits){2, least - 2} : NDP_ALL_ITERATIONS;
}

static ndp_status prove(const ndp_lanes *l, const ndp_units *u, ndp_visits visits) {
    ndp_step_world w;
    ndp_status st = ndp_step_world_init(l, u, visits, &w);
    if (st == NDP_OK)
        st = run_all(&w);
    ndp_step_world_release(&w);
    return st;
}

ndp_status ndp_steps_prove(const ndp_lanes *l, const ndp_units *u) {
    NDP_TRY(ndp_claims_prove(l));
    return prove(l, u, visits_of(l));
}
