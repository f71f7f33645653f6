/* What all instructions of a lane use: messages about errors, and elements that memory must hold. */
#include "placement/step_world.h"

static ndp_text instr_text(const ndp_program *p, int at) {
    static const char *const kinds[] = {"", "begin of ", "wait for "};
    const ndp_instr *in = at >= 0 && at < p->n ? &p->instrs[at] : NULL;
    const char *what = in && in->what ? in->what : "";
    ndp_text out = {""};
    if (!in)
        ndp_text_add(&out, "the end of the step");
    else if (in->code == NDP_DO_RUN)
        ndp_text_add(&out, "#%d %s %s", at, ndp_phase_name(in->phase), what);
    else
        ndp_text_add(&out, "#%d %s%s %s", at, kinds[in->call.kind], in->call.op->name, what);
    return out;
}

ndp_status ndp_step_refused(const ndp_step_lane *l, ndp_status st) {
    return NDP_FAIL(st, "placement: %s: %s: %s", ndp_lane_text(l->world->lanes, l->lane).s,
                    instr_text(l->program, l->over ? NDP_NONE : l->walk.at).s, ndp_error_message());
}

#define NAME(KIND, text) text,
static const char *const held_names[] = {NDP_HELD_LIST(NAME)};
#undef NAME

static const char *own_text(ndp_own own) {
    static const char *const names[] = {"", ", of own samples over dp_replicate", ", of own samples over dp_shard",
                                        ", of own samples over dp_replicate and dp_shard"};
    return names[own & NDP_OWN_BOTH];
}

/* What is left out of a gradient, or there twice, if it is one micro-batch. */
static ndp_text micro_batch_text(const ndp_step_world *w, ndp_share s) {
    ndp_text out = {""};
    for (int m = 0; m < w->micro_batches && w->micro_batches > 1; m++) {
        ndp_share one = ndp_step_weight(w, m);
        if (ndp_share_add(s, one) == 1)
            ndp_text_add(&out, ": that of micro-batch %d is missing", m);
        if (ndp_share_sub(s, one) == 1)
            ndp_text_add(&out, ": that of micro-batch %d is there twice", m);
        if (s == one)
            ndp_text_add(&out, ": that of micro-batch %d alone", m);
    }
    return out;
}

ndp_text ndp_held_text(const ndp_step_lane *l, const ndp_held *s) {
    static const char *const times[] = {"before this step alone", "in this step", "twice in this step"};
    const ndp_step_world *w = l->world;
    ndp_text out = {""};
    ndp_text_add(&out, "%s", held_names[s ? s->kind : NDP_HELD_NOTHING]);
    if (!s)
        return out;
    bool unit = s->kind >= NDP_HELD_BOUNDARY && s->kind <= NDP_HELD_BETWEEN;
    if (unit && s->of >= 0 && s->of < w->whole->n_units)
        ndp_text_add(&out, " of %s, micro-batch %d", w->whole->units[s->of].name, s->at);
    else if (s->kind >= NDP_HELD_PARAM && s->kind != NDP_HELD_ZERO && s->of >= 0)
        ndp_text_add(&out, " of %s", w->whole->buffers[s->of].name);
    if (unit && s->share != 0)
        ndp_text_add(&out, ", changed in place");
    if (s->kind == NDP_HELD_GRAD)
        ndp_text_add(&out, ", %s%s%s", ndp_share_text(s->share).s, micro_batch_text(w, s->share).s, own_text(s->own));
    if (s->kind >= NDP_HELD_PARAM && s->kind <= NDP_HELD_SCALES1)
        ndp_text_add(&out, ", updated %s", times[s->at < 2 ? s->at : 2]);
    if (s->made != NDP_NONE)
        ndp_text_add(&out, ", made by %s", instr_text(l->program, s->made).s);
    return out;
}

/* ---- what elements must be ---- */

/* What a lane has of the gradient of an element in its slice. */
static ndp_sum part_of_element(const ndp_step_lane *l, const void *what) {
    const ndp_held *want = what;
    int local = ndp_step_local(l, want->of);
    if (local == NDP_NONE)
        return (ndp_sum){{0}};
    const ndp_owned *o = &l->program->owned[local];
    size_t size = ndp_held_unit(want);
    int64_t in_slice = want->first - o->shard.index * o->shard.slice;
    size_t at = o->grad.offset + (size_t)in_slice * size;
    ndp_held x = ndp_memory_find(&l->memory, (ndp_bytes){o->grad.block, at, at + size});
    return (ndp_sum){{in_slice >= 0 && in_slice < o->shard.slice && x.kind == NDP_HELD_GRAD ? x.share : 0}};
}

static ndp_status refuse_elements(const ndp_step_lane *l, const ndp_step_buffer *b, const ndp_held *is,
                                  const ndp_held *want) {
    int segment = NDP_NONE;
    for (int k = 0; k < b->n; k++)
        if (b->stretches[k].first <= want->first && want->first < b->stretches[k].end)
            segment = b->stretches[k].segment;
    const char *name = segment == NDP_NONE ? b->name : l->world->whole->buffers[b->whole].segments.items[segment].name;
    const ndp_group_kind kinds[] = {NDP_GROUP_TP, NDP_GROUP_KV, NDP_GROUP_PP, NDP_GROUP_CP, NDP_GROUP_SP};
    const char *axis = is->kind == NDP_HELD_GRAD && is->of == want->of
                           ? ndp_step_axis(l, kinds, NDP_COUNT(kinds), part_of_element, want)
                           : NULL;
    return ndp_step_refuse(l, "%s from element %lld of the buffer on: it is %s%s%s, must be %s", name,
                           (long long)want->first, axis ? "a summand over " : "", axis ? axis : "",
                           axis ? "" : ndp_held_text(l, is).s, ndp_held_text(l, want).s);
}

static bool fits(const ndp_held *s, const ndp_held *want, int64_t first) {
    bool same = s->kind == want->kind && s->of == want->of && s->type == want->type && s->at == want->at;
    return same && s->first == first && (s->kind != NDP_HELD_GRAD || (s->share == 1 && s->own == NDP_OWN_NONE));
}

ndp_status ndp_step_needs(const ndp_step_lane *l, int block, size_t at, ndp_held_kind kind, const ndp_step_buffer *b,
                          int64_t first, int64_t count, ndp_dtype type, int version) {
    size_t size = ndp_dtype_size(type), start = at, end = at + (size_t)count * size;
    ndp_held s,
        want = {
            .kind = kind, .of = b->whole, .type = type, .at = version, .share = 1, .first = first, .made = NDP_NONE};
    while (ndp_memory_next(&l->memory, block, &at, end, &s)) {
        int64_t wanted = first + (int64_t)((s.start - start) / size);
        if (fits(&s, &want, wanted))
            continue;
        want.first = wanted;
        return refuse_elements(l, b, &s, &want);
    }
    return NDP_OK;
}

ndp_status ndp_step_add(ndp_step_lane *l, ndp_bytes at, const ndp_held *more, const char *of) {
    ndp_held is;
    for (size_t b = at.start; ndp_memory_next(&l->memory, at.block, &b, at.end, &is);) {
        ndp_held mine = *more;
        ndp_bytes bytes = {at.block, is.start, is.end};
        mine.first += (int64_t)((is.start - at.start) / ndp_held_unit(more));
        if (is.kind == NDP_HELD_ZERO)
            NDP_TRY(ndp_memory_write(&l->memory, bytes, mine));
        else if (is.kind == NDP_HELD_GRAD && is.of == mine.of && is.first == mine.first && is.type == mine.type &&
                 is.own == mine.own)
            NDP_TRY(ndp_memory_add(&l->memory, bytes, mine.share, l->walk.at));
        else
            return ndp_step_refuse(l, "adds to %s%s%s%s", of ? "the gradient of " : "", of ? of : "",
                                   of ? " where there is " : "", ndp_held_text(l, &is).s);
    }
    return NDP_OK;
}
