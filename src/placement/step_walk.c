/* The order in which instructions of lanes run: each lane until it waits for one that has not come as far. */
#include "placement/step_world.h"

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

/* Runs a lane until it waits. */
static ndp_status advance(void *user, int lane, bool *moved, bool *over) {
    ndp_step_world *w = user;
    ndp_step_lane *l = &w->items[lane];
    while (!l->over) {
        if (!l->again) {
            l->over = !ndp_program_next(l->program, w->visits, &l->walk);
            l->instr = l->over ? NULL : &l->program->instrs[l->walk.at];
        }
        NDP_TRY(l->over ? ndp_step_end(l) : execute(l));
        if (l->again)
            return NDP_OK;
        *moved = true;
    }
    *over = true;
    return NDP_OK;
}

static ndp_status run_all(ndp_step_world *w) {
    int stuck;
    NDP_TRY(ndp_lanes_run(0, w->lanes->n, advance, w, &stuck));
    if (stuck != NDP_NONE)
        return ndp_step_refuse(&w->items[stuck], "waits forever");
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

ndp_status ndp_steps_prove(const ndp_lanes *l, const ndp_units *u) {
    ndp_step_world w;
    ndp_status st = ndp_step_world_init(l, u, visits_of(l), &w);
    st = st == NDP_OK ? run_all(&w) : st;
    ndp_step_world_release(&w);
    return st;
}
