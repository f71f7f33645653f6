/* Begins and waits of the program. A begin takes what its operand holds, and nothing may be read of its result until
 * the wait, which writes what the group made. */
#include "placement/step_world.h"

#include <string.h>

/* ---- operations under way ---- */

/* One that is free keeps the room of its lists. */
static ndp_status take(ndp_step_world *w, ndp_under_way **out) {
    ndp_under_way *u = *out = w->free;
    if (!u)
        return NDP_NEW(&w->arena, 1, *out);
    ndp_held_list spans = u->spans, added = u->added, result = u->result;
    w->free = u->next;
    spans.n = added.n = result.n = 0;
    *u = (ndp_under_way){.spans = spans, .added = added, .result = result};
    return NDP_OK;
}

static void give(ndp_step_world *w, ndp_under_way *u) {
    u->next = w->free;
    w->free = u;
}

static bool is_message(const ndp_call *c) { return c->op->collective == NDP_SEND || c->op->collective == NDP_RECV; }

/* The bytes of an operand. Blocks of messages alone rotate. */
static ndp_bytes operand(const ndp_step_lane *l, const ndp_operand *o) {
    ndp_bytes b = ndp_step_bytes(o);
    if (l->instr->role != NDP_NONE)
        b.block = ndp_block_at(l->program->blocks, b.block, &l->walk);
    return b;
}

/* ---- begins ---- */

/* All bytes of a message are something. */
static ndp_status check_message(const ndp_step_lane *l, ndp_bytes b) {
    ndp_held s = ndp_memory_find(&l->memory, b);
    if ((s.kind == NDP_HELD_BOUNDARY || s.kind == NDP_HELD_BOUNDARY_GRAD) && s.share == 0)
        return NDP_OK;
    ndp_held first = ndp_memory_first(&l->memory, b);
    return ndp_step_refuse(l, "sends %s, must be the output of a unit, or a gradient of one",
                           ndp_held_text(l, &first).s);
}

/* The lane at another place on pp. */
static int lane_of_peer(const ndp_step_lane *l, int peer) {
    const ndp_members *m = ndp_step_members(l, NDP_GROUP_PP);
    return peer >= 0 && peer < m->n ? m->lanes[peer] : NDP_NONE;
}

/* Numbers of the step travel as such. */
static ndp_status take_operand(ndp_step_lane *l, ndp_under_way *u, ndp_bytes in) {
    u->scalar = ndp_step_scalar_at(l, in);
    if (u->scalar != NDP_NONE) {
        u->sum = l->scalars[u->scalar];
        return NDP_OK;
    }
    return ndp_memory_read(&l->memory, in, &u->spans);
}

static ndp_status begin_message(ndp_step_lane *l, ndp_under_way *u, ndp_bytes in) {
    if (l->instr->call.op->collective == NDP_RECV)
        return ndp_memory_clear(&l->memory, in);
    NDP_TRY(check_message(l, in));
    NDP_TRY(ndp_memory_read(&l->memory, in, &u->spans));
    if (lane_of_peer(l, u->peer) == NDP_NONE)
        return ndp_step_refuse(l, "there is no rank %d on pp", u->peer);
    u->left = 2;
    NDP_TRY(NDP_GROW(&l->world->arena, l->n_sent, &l->sent_capacity, l->sent));
    l->sent[l->n_sent++] = u;
    return NDP_OK;
}

/* The operand is in, or a part of, the result where the ranks' memory is one. */
static ndp_status clear_result(ndp_step_lane *l, ndp_bytes in, ndp_bytes out) {
    if (in.block != out.block || in.start < out.start || in.end > out.end)
        return ndp_memory_clear(&l->memory, out);
    NDP_TRY(ndp_memory_clear(&l->memory, (ndp_bytes){out.block, out.start, in.start}));
    return ndp_memory_clear(&l->memory, (ndp_bytes){out.block, in.end, out.end});
}

static ndp_status note_begin(ndp_step_lane *l, ndp_under_way *u) {
    int c = u->channel;
    NDP_TRY(ndp_meet_begin(&l->world->meetings, l->lane, c, u, &u->number));
    NDP_TRY(NDP_GROW(&l->world->arena, u->number, &l->capacity[c], l->begun[c]));
    l->begun[c][u->number] = l->walk.executed;
    u->left = u->group->n;
    return NDP_OK;
}

/* Notes the sum if the operand is the part that a reduce_scatter left of it. */
static ndp_status take_part(const ndp_step_lane *l, ndp_under_way *u, ndp_bytes in) {
    const ndp_scattered *part = &l->part;
    u->is_part = part->group == ndp_channel_group(u->channel) && part->bytes.block == in.block &&
                 part->bytes.start == in.start && part->bytes.end == in.end;
    for (int i = 0; i < u->spans.n && u->is_part; i++)
        u->is_part = u->spans.items[i].made == part->made;
    return u->is_part ? ndp_held_append(&l->world->arena, &u->added, &part->sum) : NDP_OK;
}

static ndp_status begin_collective(ndp_step_lane *l, ndp_under_way *u, ndp_bytes in) {
    const ndp_call *c = &l->instr->call;
    ndp_bytes out = operand(l, &c->out[0]);
    u->group = ndp_step_members(l, ndp_channel_group(u->channel));
    size_t many = (size_t)u->group->ranks, handed = in.end - in.start, got = out.end - out.start;
    bool gathers = c->op->collective == NDP_ALL_GATHER, scatters = c->op->collective == NDP_REDUCE_SCATTER;
    if (!gathers && !scatters && c->op->collective != NDP_ALL_REDUCE)
        return ndp_step_refuse(l, "no program has this operation");
    if (gathers ? got != handed * many : scatters ? handed != got * many : got != handed)
        return ndp_step_refuse(l, "%zu bytes in, %zu bytes out, of %d ranks", handed, got, u->group->ranks);
    NDP_TRY(take_operand(l, u, in));
    if (scatters && c->attr.accumulate)
        NDP_TRY(ndp_memory_read(&l->memory, out, &u->added));
    if (gathers)
        NDP_TRY(take_part(l, u, in));
    NDP_TRY(gathers ? clear_result(l, in, out) : ndp_memory_clear(&l->memory, out));
    return note_begin(l, u);
}

ndp_status ndp_step_begin(ndp_step_lane *l) {
    const ndp_instr *in = l->instr;
    const ndp_call *c = &in->call;
    int work = ndp_work_at(in, &l->walk);
    ndp_under_way *u;
    NDP_TRY(take(l->world, &u));
    if (l->under_way[work])
        return ndp_step_refuse(l, "its number, %d, is that of #%d, which is under way", work, l->under_way[work]->at);
    ndp_bytes bytes = operand(l, &c->in[0]);
    u->instr = in, u->lane = l->lane, u->at = l->walk.at, u->work = work, u->channel = c->channel;
    u->peer = c->attr.peer, u->tag = ndp_tag_at(c, &l->walk), u->bytes = bytes.end - bytes.start;
    u->scalar = NDP_NONE;
    u->of = in->buffer == NDP_NONE ? NDP_NONE : l->shared->buffers[in->buffer].whole;
    l->under_way[work] = u;
    l->n_under_way++;
    return is_message(c) ? begin_message(l, u, bytes) : begin_collective(l, u, bytes);
}

/* ---- waits ---- */

static void end(ndp_step_lane *l, ndp_under_way *u) {
    l->under_way[u->work] = NULL;
    l->n_under_way--;
}

/* Both sides of a message have its begin. */
static void give_sent(ndp_step_world *w, ndp_under_way *u) {
    if (--u->left == 0)
        give(w, u);
}

/* A message that the rank at place `me` on pp receives as `u`. */
static bool is_for(const ndp_under_way *sent, int me, const ndp_under_way *u) {
    bool back = sent->channel == NDP_CHANNEL_BACKWARD;
    return sent->peer == me && sent->tag == u->tag && back == (u->channel == NDP_CHANNEL_BACKWARD);
}

/* A message is there once the peer has begun to send one with the tag. */
static ndp_status wait_message(ndp_step_lane *l, ndp_under_way *u) {
    int from = lane_of_peer(l, u->peer), me = ndp_step_members(l, NDP_GROUP_PP)->me;
    ndp_step_lane *peer = &l->world->items[from == NDP_NONE ? l->lane : from];
    int64_t i = 0;
    if (u->instr->call.op->collective == NDP_SEND) {
        end(l, u);
        give_sent(l->world, u);
        return NDP_OK;
    }
    while (i < peer->n_sent && !is_for(peer->sent[i], me, u))
        i++;
    l->again = i == peer->n_sent;
    if (l->again)
        return NDP_OK;
    ndp_under_way *sent = peer->sent[i];
    memmove(peer->sent + i, peer->sent + i + 1, (size_t)(--peer->n_sent - i) * sizeof(void *));
    if (sent->bytes != u->bytes)
        return ndp_step_refuse(l, "receives %zu bytes, of %zu that are sent", u->bytes, sent->bytes);
    NDP_TRY(ndp_memory_put(&l->memory, operand(l, &l->instr->call.out[0]), &sent->spans, l->walk.at));
    give_sent(l->world, sent);
    end(l, u);
    give(l->world, u);
    return NDP_OK;
}

/* What the members have handed in, in the order of the group; false: one has not begun. */
static bool all_begun(const ndp_step_lane *l, const ndp_under_way *u, ndp_under_way **members) {
    const ndp_members *m = u->group;
    for (int i = 0; i < m->n; i++) {
        members[i] = ndp_meet_handed(&l->world->meetings, m->lanes[i], u->channel, u->number);
        if (!members[i])
            return false;
    }
    return true;
}

static ndp_status check_alike(ndp_step_lane *l, ndp_under_way **members) {
    for (int i = 1; i < members[0]->group->n; i++) {
        const ndp_under_way *a = members[0], *b = members[i];
        if (a->instr->call.op != b->instr->call.op || a->bytes != b->bytes || a->scalar != b->scalar)
            return ndp_step_refuse(l, "meets #%d %s of %s, another operation", b->at, b->instr->call.op->name,
                                   ndp_lane_text(l->world->lanes, b->lane).s);
    }
    return NDP_OK;
}

/* The sum of numbers of the step. */
static ndp_status wait_scalar(ndp_step_lane *l, ndp_under_way **members) {
    ndp_sum sum = {{0}};
    if (l->instr->call.op->collective != NDP_ALL_REDUCE)
        return ndp_step_refuse(l, "no program has this operation on a number");
    for (int i = 0; i < members[0]->group->n; i++)
        ndp_sum_add(&sum, &members[i]->sum);
    return ndp_step_scalar_write(l, members[0]->scalar, ndp_step_sum_over(l->world, &sum, members[0]->group->own));
}

/* The part of a sum that a rank of a reduce_scatter gets, added to what is there. */
static ndp_status write_part(ndp_step_lane *l, const ndp_under_way *u, const ndp_held_list *sum, ndp_bytes out) {
    size_t bytes = out.end - out.start, low = bytes * (size_t)ndp_step_place(l, ndp_channel_group(u->channel));
    bool adds = u->instr->call.attr.accumulate;
    NDP_TRY(ndp_memory_put(&l->memory, out, &u->added, l->walk.at));
    l->part.group = ndp_channel_group(u->channel), l->part.bytes = out, l->part.made = adds ? NDP_NONE : l->walk.at;
    l->part.sum.n = 0;
    NDP_TRY(ndp_held_append(&l->world->arena, &l->part.sum, sum));
    NDP_TRY(ndp_step_scattered(l, u, sum));
    for (int i = 0; i < sum->n; i++) {
        const ndp_held *s = &sum->items[i];
        size_t start = s->start > low ? s->start : low, stop = s->end < low + bytes ? s->end : low + bytes;
        if (start >= stop)
            continue;
        ndp_held part = ndp_held_cut(s, start, stop);
        ndp_bytes at = {out.block, out.start + start - low, out.start + stop - low};
        part.made = l->walk.at;
        if (!adds)
            NDP_TRY(ndp_memory_write(&l->memory, at, part));
        else if (part.kind != NDP_HELD_ZERO)
            NDP_TRY(ndp_step_add(l, at, &part, NULL));
    }
    return NDP_OK;
}

static ndp_status wait_collective(ndp_step_lane *l, ndp_under_way *u, ndp_under_way **members) {
    ndp_bytes out = operand(l, &u->instr->call.out[0]);
    NDP_TRY(check_alike(l, members));
    if (u->scalar != NDP_NONE)
        return wait_scalar(l, members);
    ndp_held_list *result = &members[0]->result;
    ndp_collective kind = u->instr->call.op->collective;
    if (!members[0]->made)
        NDP_TRY(kind == NDP_ALL_GATHER ? ndp_step_gather(l, members, result) : ndp_step_reduce(l, members, result));
    members[0]->made = true;
    return kind == NDP_REDUCE_SCATTER ? write_part(l, u, result, out)
                                      : ndp_memory_put(&l->memory, out, result, l->walk.at);
}

ndp_status ndp_step_wait(ndp_step_lane *l) {
    ndp_step_world *w = l->world;
    ndp_under_way *u = l->under_way[ndp_work_at(l->instr, &l->walk)], **members = w->meeting;
    l->again = false;
    if (!u || u->instr->call.op != l->instr->call.op)
        return ndp_step_refuse(l, "waits for what is not under way");
    if (is_message(&u->instr->call))
        return wait_message(l, u);
    l->again = !all_begun(l, u, members);
    if (l->again)
        return NDP_OK;
    NDP_TRY(wait_collective(l, u, members));
    l->waited[u->channel] = u->number;
    end(l, u);
    if (--members[0]->left == 0)
        for (int i = 0; i < u->group->n; i++)
            give(w, members[i]);
    return NDP_OK;
}
