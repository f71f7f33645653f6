/* Windows: ranks of a node read each other's slices in place, so an owner may write its slice only when no rank of the
 * group reads it any more. It may after it has waited for an operation of all those ranks that each has begun after its
 * last read. */
#include "placement/step_world.h"

#include <string.h>

static bool is_window(const ndp_step_lane *l, int buffer) { return l->program->owned[buffer].shard.in_place; }

void ndp_step_reads(ndp_step_lane *l, int buffer) {
    if (is_window(l, buffer))
        l->read[buffer] = l->walk.executed;
}

void ndp_step_writes(ndp_step_lane *l, int buffer) {
    ndp_window_write *wrote = &l->wrote[buffer];
    if (!is_window(l, buffer) || wrote->any)
        return;
    wrote->any = true;
    wrote->at = l->walk.at;
    memcpy(wrote->waited, l->waited, sizeof wrote->waited);
}

/* True if every owner had read the buffer for the last time when it began the operation that lane `l` waited for before
 * it wrote. */
static bool came_after(const ndp_step_lane *l, int buffer, int channel, const ndp_members *owners) {
    const ndp_step_world *w = l->world;
    const ndp_members *group = ndp_step_members(l, ndp_channel_group(channel));
    int64_t number = l->wrote[buffer].waited[channel];
    int whole = l->shared->buffers[buffer].whole;
    if (number == NDP_NONE || (owners->own & ~group->own) != 0)
        return false;
    for (int i = 0; i < owners->n; i++) {
        int lane = owners->lanes[i], k = 0;
        const ndp_step_lane *other = &w->items[lane];
        while (k < group->n && group->lanes[k] != lane)
            k++;
        if (k == group->n || other->begun[channel][number] <= other->read[other->shared->local[whole]])
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
                           l->wrote[buffer].at, b->name, ndp_group_name(b->owners));
}

ndp_status ndp_step_windows(const ndp_step_world *w) {
    for (int i = 0; i < w->lanes->n; i++)
        for (int b = 0; b < w->items[i].program->opts.model->n_buffers; b++)
            if (w->items[i].wrote[b].any)
                NDP_TRY(check_window(&w->items[i], b));
    return NDP_OK;
}
