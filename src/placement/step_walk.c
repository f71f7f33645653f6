/* The order in which instructions of lanes run: each lane until it waits for one that has not come as far.
 *
 * Windows: ranks of a node read each other's slices in place, so an owner may write its slice only when no rank of the
 * group reads it any more. It may after it has waited for an operation of all those ranks that each has begun after its
 * last read. */
#include "placement/step_world.h"

#include <string.h>

/* ---- windows ---- */

static bool is_window(const ndp_step_lane *l, int buffer) { return l->program->owned[buffer].shard.in_place; }

void ndp_step_reads(ndp_step_lane *l, int buffer) {
    if (is_window(l, buffer))
        l->uses[buffer].read = l->walk.executed;
}

void ndp_step_writes(ndp_step_lane *l, int buffer) {
    ndp_step_use *wrote = &l->uses[buffer];
    if (!is_window(l, buffer) || wrote->wrote)
        return;
    wrote->wrote = true;
    wrote->at = l->walk.at;
    memcpy(wrote->waited, l->waited, sizeof wrote->waited);
}

/* True if every owner had read the buffer for the last time when it began the operation that lane `l` waited for before
 * it wrote. */
static bool came_after(const ndp_step_lane *l, int buffer, int channel, const ndp_members *owners) {
    const ndp_step_world *w = l->world;
    const ndp_members *group = ndp_step_members(l, ndp_channel_group(channel));
    int64_t number = l->uses[buffer].waited[channel];
    int whole = l->shared->buffers[buffer].whole;
    if (number == NDP_NONE || (owners->own & ~group->own) != 0)
        return false;
    for (int i = 0; i < owners->n; i++) {
        int lane = owners->lanes[i], k = 0;
        const ndp_step_lane *other = &w->items[lane];
        while (k < group->n && group->lanes[k] != lane)
            k++;
        if (k == group->n || other->begun[channel][number] <= other->uses[other->shared->local[whole]].read)
            return false;
    }
    return true;
}

static ndp_status check_window(const ndp_step_lane *l, int buffer) {
    const ndp_buffer *b = &l->program->opts.model->buffers[buffer];
    const ndp_members *owners = ndp_step_members(l, b->owners);
    for (int channel = 0; channel < NDP_CHANNEL_FORWARD; channel++)
        if (came_after(l, buffer, channel, owners))
            return NDP_OK;
    return ndp_step_refuse(l,
                           "#%d writes %s where ranks of group %s read it in place, and no operation of the group "
                           "between shows that they have",
                           l->uses[buffer].at, b->name, ndp_group_name(b->owners));
}

static ndp_status check_windows(const ndp_step_world *w) {
    for (int i = 0; i < w->lanes->n; i++)
        for (int b = 0; b < w->items[i].program->opts.model->n_buffers; b++)
            if (w->items[i].uses[b].wrote)
                NDP_TRY(check_window(&w->items[i], b));
    return NDP_OK;
}

/* ---- lanes ---- */

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
    return check_windows(w);
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
    return least > 2 ? (ndp_visits){2, least - 2, false} : NDP_ALL_ITERATIONS;
}

ndp_status ndp_steps_prove(const ndp_lanes *l, const ndp_units *u) {
    ndp_step_world w;
    ndp_status st = ndp_step_world_init(l, u, visits_of(l), &w);
    st = st == NDP_OK ? run_all(&w) : st;
    ndp_step_world_release(&w);
    return st;
}
