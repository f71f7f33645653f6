/* What a collective makes of its ranks' operands.
 *
 * Ranks of the axes pp, cp, sp and tp are lanes, and their shares are added. A rank of a data axis does as this one
 * does, with its own samples or slice: a share that is of own samples on the axis becomes that of all, and one that is
 * not is the same number on every rank, so the sum has it that many times. */
#include "placement/step_world.h"

/* Times that a sum over the axes of `own` has what is not own there, and what is own after it. */
static ndp_share times_over(const ndp_step_world *w, ndp_own own, ndp_own of, ndp_own *left) {
    ndp_share times = 1;
    if (own & NDP_OWN_REPLICATE & ~of)
        times = ndp_share_mul(times, ndp_share_of(ndp_lanes_blocks(w->lanes, 0)));
    if (own & NDP_OWN_SHARD & ~of)
        times = ndp_share_mul(times, ndp_share_of(ndp_lanes_blocks(w->lanes, 1)));
    *left = (ndp_own)(of & ~own);
    return times;
}

ndp_sum ndp_step_sum_over(const ndp_step_world *w, const ndp_sum *s, ndp_own own) {
    ndp_sum sum = {{0}};
    for (int of = 0; of < NDP_COUNT(sum.by_own); of++) {
        ndp_own left;
        ndp_share times = times_over(w, own, (ndp_own)of, &left);
        sum.by_own[left] = ndp_share_add(sum.by_own[left], ndp_share_mul(times, s->by_own[of]));
    }
    return sum;
}

const char *ndp_step_axis(const ndp_step_lane *l, const ndp_group_kind *kinds, int n, ndp_part_fn *part,
                          const void *what) {
    for (int k = 0; k < n; k++) {
        const ndp_members *m = ndp_step_members(l, kinds[k]);
        ndp_sum sum = {{0}};
        for (int i = 0; i < m->n; i++) {
            ndp_sum more = part(&l->world->items[m->lanes[i]], what);
            ndp_sum_add(&sum, &more);
        }
        sum = ndp_step_sum_over(l->world, &sum, m->own);
        if (m->ranks > 1 && ndp_sum_is_complete(&sum))
            return ndp_group_name(kinds[k]);
    }
    return NULL;
}

/* ---- the same elements ---- */

/* True if elements [first, end) of a buffer are the same of the same tensors on both lanes. */
static bool same_elements(const ndp_step_world *w, int a, int b, int whole, int64_t first, int64_t end) {
    const ndp_segments *x = ndp_step_table_of(&w->items[a], whole), *y = ndp_step_table_of(&w->items[b], whole);
    if (!x || !y || x->n != y->n)
        return false;
    for (int k = 0; k < x->n && x != y; k++) {
        const ndp_segment *s = &x->items[k];
        bool meets = s->offset < end && first < s->offset + s->length;
        if (meets && !ndp_segments_same(s, &y->items[k], NDP_SAME_SIZES | NDP_SAME_RECTANGLE))
            return false;
    }
    return true;
}

static int64_t end_of(const ndp_held *s) { return s->first + (int64_t)((s->end - s->start) / ndp_held_unit(s)); }

/* ---- sums ---- */

static const ndp_held zeros = {.kind = NDP_HELD_ZERO};

static ndp_status refuse_summand(ndp_step_lane *l, const ndp_under_way *of, const ndp_held *s, const char *must) {
    return ndp_step_refuse(l, "%s hands in %s, must be %s", ndp_lane_text(l->world->lanes, of->lane).s,
                           ndp_held_text(&l->world->items[of->lane], s).s, must);
}

/* Adds `s` of a member to `sum`, which has the elements from byte `at` on. */
static ndp_status add_summand(ndp_step_lane *l, const ndp_under_way *member, const ndp_held *s, size_t at, size_t end,
                              const ndp_under_way *first, ndp_held *sum) {
    if (s->kind == NDP_HELD_ZERO)
        return NDP_OK;
    ndp_held part = ndp_held_cut(s, at, end);
    if (sum->kind == NDP_HELD_ZERO) {
        *sum = part;
        return NDP_OK;
    }
    bool same = part.of == sum->of && part.first == sum->first && part.type == sum->type && part.own == sum->own;
    if (!same)
        return refuse_summand(l, member, s, "the same elements as those of the other ranks, of own samples as theirs");
    if (!same_elements(l->world, member->lane, first->lane, part.of, part.first, end_of(&part)))
        return refuse_summand(l, member, s, "the same rows and columns as those of the other ranks");
    sum->share = ndp_share_add(sum->share, part.share);
    return NDP_OK;
}

static const ndp_held *any_gradient(const ndp_held_list *s) {
    int i = 0;
    while (i < s->n && s->items[i].kind != NDP_HELD_GRAD)
        i++;
    return i < s->n ? &s->items[i] : NULL;
}

/* The element at byte 0 of an operand with elements of the buffer; *size: of one. An operand without any may be padding
 * in a gradient's slice. False: it has no elements of the buffer. */
static bool first_element(const ndp_step_lane *l, const ndp_under_way *u, int buffer, int64_t *first, int64_t *size) {
    for (int i = 0; i < u->spans.n; i++) {
        const ndp_held *s = &u->spans.items[i];
        *size = (int64_t)ndp_held_unit(s);
        *first = s->first - (int64_t)s->start / *size;
        if (ndp_held_is_flat(s->kind) && s->of == buffer)
            return true;
    }
    const ndp_step_lane *of = &l->world->items[u->lane];
    const ndp_operand *in = &u->instr->call.in[0];
    int local = of->shared->local[buffer];
    const ndp_owned *o = local == NDP_NONE ? NULL : &of->program->owned[local];
    *size = (int64_t)ndp_dtype_size(in->view.dtype);
    *first = o ? o->shard.index * o->shard.slice + ((int64_t)in->offset - (int64_t)o->grad.offset) / *size : 0;
    return o && o->grad.block == in->base;
}

/* True if bytes [at, end) are elements of no tensor. Memory there has what was in it before. */
static bool is_gap(const ndp_step_lane *l, const ndp_under_way *u, int buffer, size_t at, size_t end) {
    const ndp_step_lane *of = &l->world->items[u->lane];
    int64_t first, size;
    int k = 0;
    ndp_stretch t;
    return ndp_step_local(of, buffer) != NDP_NONE && first_element(l, u, buffer, &first, &size) &&
           !ndp_step_next_stretch(&of->shared->buffers[ndp_step_local(of, buffer)], &k, first + (int64_t)at / size,
                                  first + (int64_t)end / size, &t);
}

static bool is_summand(const ndp_held *s, int buffer) {
    return s && (s->kind == NDP_HELD_ZERO || (s->kind == NDP_HELD_GRAD && s->of == buffer));
}

/* Sums bytes [at, *end) of all members, as far as each has one span there. */
static ndp_status sum_part(ndp_step_lane *l, ndp_under_way **members, int buffer, size_t at, size_t *end,
                           ndp_held_list *out) {
    const ndp_members *m = members[0]->group;
    ndp_held sum = zeros;
    int have = 0;
    for (int i = 0; i < m->n; i++)
        have += is_summand(ndp_held_at(&members[i]->spans, at, end), buffer);
    for (int i = 0; i < m->n; i++) {
        size_t to = *end;
        const ndp_held *s = ndp_held_at(&members[i]->spans, at, &to);
        if (is_summand(s, buffer))
            NDP_TRY(add_summand(l, members[i], s, at, *end, members[0], &sum));
        else if (!is_gap(l, members[i], buffer, at, *end))
            return refuse_summand(l, members[i], s, "a gradient");
    }
    if (have < m->n)
        return NDP_OK;
    sum.start = at, sum.end = *end, sum.made = l->walk.at;
    if (sum.kind == NDP_HELD_GRAD) {
        ndp_own left;
        sum.share = ndp_share_mul(sum.share, times_over(l->world, m->own, sum.own, &left));
        sum.own = left;
    }
    return ndp_held_add(&l->world->arena, out, sum);
}

ndp_status ndp_step_reduce(ndp_step_lane *l, ndp_under_way **members, ndp_held_list *out) {
    const ndp_held *any = any_gradient(&members[0]->spans);
    int buffer = members[0]->of == NDP_NONE && any ? any->of : members[0]->of;
    for (size_t at = 0, end; at < members[0]->bytes; at = end) {
        end = members[0]->bytes;
        NDP_TRY(sum_part(l, members, buffer, at, &end, out));
    }
    return NDP_OK;
}

/* ---- gathers ---- */

/* One rank's part after another: where all of the group are lanes, but for slices, whose number may be that of the rank
 * that a program stands in for. */
static ndp_status join_parts(ndp_step_lane *l, ndp_under_way **members, ndp_held_list *out) {
    const ndp_members *m = members[0]->group;
    for (int i = 0; i < m->n; i++)
        for (int k = 0; k < members[i]->spans.n; k++) {
            ndp_held s = members[i]->spans.items[k];
            s.start += (size_t)i * members[i]->bytes, s.end += (size_t)i * members[i]->bytes;
            s.made = l->walk.at;
            NDP_TRY(ndp_held_add(&l->world->arena, out, s));
        }
    return NDP_OK;
}

/* True if a gather of such spans must have the stretch: directions are of whole matrices alone. */
static bool wants(ndp_held_kind kind, const ndp_stretch *t) {
    return kind == NDP_HELD_PARAM || kind == NDP_HELD_GRAD || t->directed;
}

/* What a gather of slices is about. */
typedef struct gathered_slices {
    int buffer;    /* of the whole model */
    int64_t base;  /* the element at which the first slice starts */
    int64_t count; /* elements of a slice */
    ndp_held like; /* what all of it is */
} gathered_slices;

/* The first span that has elements of the buffer at their place in the member's slice. Directions come first: memory
 * between them has what was in it before. */
static const ndp_held *first_like(const gathered_slices *g, const ndp_under_way *u, int place) {
    const ndp_held *found = NULL;
    for (int i = 0; i < u->spans.n; i++) {
        const ndp_held *s = &u->spans.items[i];
        if (!ndp_held_is_flat(s->kind) || s->of != g->buffer)
            continue;
        int64_t unit = (int64_t)ndp_held_unit(s), low = g->base + place * ((int64_t)u->bytes / unit);
        bool here = s->first == low + (int64_t)s->start / unit;
        if (here && (!found || (s->kind >= NDP_HELD_DIRECTION && found->kind < NDP_HELD_DIRECTION)))
            found = s;
    }
    return found;
}

static bool is_like(const ndp_held *s, const ndp_held *like) {
    return s && s->kind == like->kind && s->of == like->of && s->type == like->type && s->share == like->share &&
           s->own == like->own && s->at == like->at;
}

/* All elements of slice `place` that the gather is to have are in a member's operand, alike. */
static ndp_status check_slice(ndp_step_lane *l, const gathered_slices *g, ndp_under_way *u, int place) {
    const ndp_step_lane *of = &l->world->items[u->lane];
    int local = ndp_step_local(of, g->buffer);
    const ndp_step_buffer *b = local == NDP_NONE ? NULL : &of->shared->buffers[local];
    int64_t unit = (int64_t)ndp_held_unit(&g->like), low = g->base + place * g->count;
    ndp_stretch t;
    for (int k = 0; b && ndp_step_next_stretch(b, &k, low, low + g->count, &t);)
        for (int64_t at = t.first; wants(g->like.kind, &t) && at < t.end;) {
            size_t stop = (size_t)((t.end - low) * unit), byte = (size_t)((at - low) * unit);
            const ndp_held *s = ndp_held_at(&u->spans, byte, &stop);
            if (!is_like(s, &g->like) || s->first + (int64_t)(byte - s->start) / unit != at) {
                ndp_held want = g->like;
                want.made = NDP_NONE;
                return refuse_summand(l, u, s, ndp_held_text(l, &want).s);
            }
            at = low + (int64_t)stop / unit;
        }
    return b ? NDP_OK : refuse_summand(l, u, NULL, "a slice of the same buffer");
}

static ndp_status find_slices(ndp_step_lane *l, ndp_under_way **members, bool owners, gathered_slices *g) {
    const ndp_members *m = members[0]->group;
    ndp_group_kind kind = ndp_channel_group(members[0]->channel);
    const ndp_held *found = NULL;
    *g = (gathered_slices){.buffer = members[0]->of, .like = {.made = NDP_NONE}};
    if (g->buffer == NDP_NONE)
        return ndp_step_refuse(l, "gathers slices that belong to no buffer");
    for (int i = 0; i < m->n && !found; i++) {
        int64_t first, size;
        int place = ndp_step_place(&l->world->items[members[i]->lane], kind);
        if (!owners && first_element(l, members[i], g->buffer, &first, &size))
            g->base = first - place * ((int64_t)members[i]->bytes / size);
        found = first_like(g, members[i], place);
    }
    g->like = found ? *found
                    : (ndp_held){.kind = NDP_HELD_DIRECTION,
                                 .of = g->buffer,
                                 .type = l->instr->call.in[0].view.dtype,
                                 .at = ndp_step_cut_of(l, l->shared->local[g->buffer])};
    g->count = (int64_t)members[0]->bytes / (int64_t)ndp_held_unit(&g->like);
    if (g->like.kind == NDP_HELD_GRAD && m->own != NDP_OWN_NONE) /* what the others have of it is not known */
        return refuse_summand(l, members[0], &g->like, "the part of a sum that a reduce_scatter left");
    for (int i = 0; i < m->n; i++)
        NDP_TRY(check_slice(l, g, members[i], ndp_step_place(&l->world->items[members[i]->lane], kind)));
    return g->base >= 0 ? NDP_OK : ndp_step_refuse(l, "gathers what is not cut over group %s", ndp_group_name(kind));
}

/* Slices of a buffer become all of it. */
static ndp_status join_slices(ndp_step_lane *l, ndp_under_way **members, bool owners, ndp_held_list *out) {
    gathered_slices g;
    NDP_TRY(find_slices(l, members, owners, &g));
    const ndp_step_buffer *b = &l->shared->buffers[l->shared->local[g.buffer]];
    int64_t unit = (int64_t)ndp_held_unit(&g.like), end = g.base + members[0]->group->ranks * g.count;
    ndp_held s = g.like;
    s.made = l->walk.at;
    if (s.kind == NDP_HELD_PARAM) {
        s.start = 0, s.end = (size_t)((end - g.base) * unit), s.first = g.base;
        return ndp_held_add(&l->world->arena, out, s);
    }
    ndp_stretch t;
    for (int k = 0; ndp_step_next_stretch(b, &k, g.base, end, &t);) {
        if (!wants(s.kind, &t))
            continue;
        s.start = (size_t)((t.first - g.base) * unit), s.end = (size_t)((t.end - g.base) * unit), s.first = t.first;
        NDP_TRY(ndp_held_add(&l->world->arena, out, s));
    }
    return NDP_OK;
}

/* True if the group's ranks own the slices of the buffer. */
static bool is_of_owners(const ndp_step_lane *l, const ndp_under_way *u) {
    int local = ndp_step_local(l, u->of);
    return local != NDP_NONE && l->program->opts.model->buffers[local].owners == ndp_channel_group(u->channel);
}

/* The parts of one sum are all of it. */
static ndp_status join_sum(ndp_step_lane *l, ndp_under_way **members, ndp_held_list *out) {
    const ndp_members *m = members[0]->group;
    for (int i = 0; i < m->n; i++)
        if (!members[i]->is_part)
            return refuse_summand(l, members[i], any_gradient(&members[i]->spans), "the part of a sum");
    return ndp_held_append(&l->world->arena, out, &members[0]->added);
}

ndp_status ndp_step_gather(ndp_step_lane *l, ndp_under_way **members, ndp_held_list *out) {
    const ndp_members *m = members[0]->group;
    bool owners = is_of_owners(l, members[0]), part = false;
    for (int i = 0; i < m->n; i++)
        part |= members[i]->is_part;
    if (part && m->own != NDP_OWN_NONE)
        return join_sum(l, members, out);
    return owners || m->own != NDP_OWN_NONE ? join_slices(l, members, owners, out) : join_parts(l, members, out);
}
