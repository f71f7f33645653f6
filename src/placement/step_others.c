/* The slices of owners that are not lanes.
 *
 * A lane owns one slice of each buffer, and what it does with it is proven. The other owners of the group do the same
 * with theirs, but of other tensors: a sum may be complete in this slice and not in another. A reduce_scatter makes all
 * slices; here their shares are kept, and completed at the end of the step by the sums that the tables claim
 * (segment.sums, shard.over), which are proven for the slices of lanes. */
#include "placement/step_world.h"

/* ---- reduce_scatters ---- */

static ndp_status add(ndp_arena *arena, ndp_step_others *o, ndp_reduced more) {
    int64_t i = 0;
    while (i < o->n && (o->items[i].first != more.first || o->items[i].end != more.end || o->items[i].own != more.own))
        i++;
    if (i < o->n) {
        o->items[i].share = ndp_share_add(o->items[i].share, more.share);
        return NDP_OK;
    }
    NDP_TRY(NDP_GROW(arena, o->n, &o->capacity, o->items));
    o->items[o->n++] = more;
    return NDP_OK;
}

/* What the slices have at `element`. */
static ndp_sum reduced_at(const ndp_step_others *o, int64_t element) {
    ndp_sum sum = {{0}};
    for (int64_t i = 0; i < o->n; i++)
        if (o->items[i].first <= element && element < o->items[i].end)
            sum.by_own[o->items[i].own] = ndp_share_add(sum.by_own[o->items[i].own], o->items[i].share);
    return sum;
}

ndp_status ndp_step_scattered(ndp_step_lane *l, const ndp_under_way *u, const ndp_held_list *sum) {
    int local = ndp_step_local(l, u->of);
    const ndp_step_buffer *b = local == NDP_NONE ? NULL : &l->shared->buffers[local];
    int64_t size = (int64_t)ndp_dtype_size(u->instr->call.in[0].view.dtype);
    bool owners = b && b->trainable && l->program->opts.model->buffers[local].owners == ndp_channel_group(u->channel) &&
                  (size_t)(b->shard.slice * b->shard.shards * size) == u->bytes;
    if (!owners)
        return NDP_OK;
    ndp_step_others *o = &l->uses[local].others;
    o->known = true;
    o->n = u->instr->call.attr.accumulate ? o->n : 0;
    for (int i = 0; i < sum->n; i++) {
        const ndp_held *s = &sum->items[i];
        ndp_reduced more = {(int64_t)s->start / size, (int64_t)s->end / size, s->own, s->share};
        NDP_TRY(s->kind == NDP_HELD_GRAD ? add(&l->world->arena, o, more) : NDP_OK);
    }
    return NDP_OK;
}

void ndp_step_moved(ndp_step_lane *l, int block) {
    for (int i = 0; i < l->program->opts.model->n_buffers; i++)
        l->uses[i].others.moved |= l->program->owned[i].grad.block == block;
}

/* ---- at the end ---- */

/* The sum over the groups `kinds`, one after another, of what lanes have at an element of a buffer. *lost: one of them
 * does not know what its owners have. */
static ndp_sum sum_over(const ndp_step_world *w, int lane, int whole, int64_t element, ndp_groups kinds, bool *lost) {
    const ndp_step_lane *l = &w->items[lane];
    int local = l->shared->local[whole], kind = 0;
    if (local == NDP_NONE)
        return (ndp_sum){{0}};
    *lost |= kinds == 0 && (l->uses[local].others.moved || !l->uses[local].others.known);
    if (kinds == 0)
        return reduced_at(&l->uses[local].others, element);
    while (!(kinds >> kind & 1))
        kind++;
    const ndp_members *m = ndp_lane_members(w->lanes, lane, (ndp_group_kind)kind);
    ndp_sum sum = {{0}};
    for (int i = 0; i < m->n; i++) {
        ndp_sum part = sum_over(w, m->lanes[i], whole, element, kinds & ~NDP_GROUP_BIT(kind), lost);
        ndp_sum_add(&sum, &part);
    }
    return ndp_step_sum_over(w, &sum, m->own);
}

static ndp_status check_element(const ndp_step_world *w, int lane, int local, const ndp_segment *s, int64_t element) {
    const ndp_step_buffer *b = &w->items[lane].shared->buffers[local];
    bool lost = false;
    ndp_sum sum = sum_over(w, lane, b->whole, element, s->sums | NDP_GROUP_BIT(b->shard.over), &lost);
    bool own = sum.by_own[NDP_OWN_REPLICATE] || sum.by_own[NDP_OWN_SHARD] || sum.by_own[NDP_OWN_BOTH];
    if (lost || ndp_sum_is_complete(&sum))
        return NDP_OK;
    return ndp_lane_refuse(
        w->lanes, lane,
        "the gradient of %s, from element %lld of %s on, is %s%s after its reduce_scatter and "
        "the sums over the ranks with the same elements; it must be complete in the slices of all owners",
        s->name, (long long)element, b->name, ndp_share_text(sum.by_own[NDP_OWN_NONE]).s,
        own ? ", and in part of own samples" : "");
}

/* Where the sum changes, some lane of the group has an element at which its part does: each looks at its own. */
static ndp_status check_buffer(const ndp_step_world *w, int lane, int local) {
    const ndp_step_buffer *b = &w->items[lane].shared->buffers[local];
    const ndp_step_others *o = &w->items[lane].uses[local].others;
    for (int k = 0; k < b->n; k++) {
        const ndp_stretch *t = &b->stretches[k];
        const ndp_segment *s = &ndp_step_table(&w->items[lane], local)->items[t->segment];
        NDP_TRY(check_element(w, lane, local, s, t->first));
        for (int64_t i = 0; i < 2 * o->n; i++) {
            int64_t element = i % 2 ? o->items[i / 2].end : o->items[i / 2].first;
            if (t->first < element && element < t->end)
                NDP_TRY(check_element(w, lane, local, s, element));
        }
    }
    return NDP_OK;
}

ndp_status ndp_step_others_check(const ndp_step_world *w) {
    for (int lane = 0; lane < w->lanes->n; lane++)
        for (int i = 0; i < w->items[lane].program->opts.model->n_buffers; i++)
            if (w->items[lane].uses[i].others.known && !w->items[lane].uses[i].others.moved)
                NDP_TRY(check_buffer(w, lane, i));
    return NDP_OK;
}
