/* Gathers of parameters. The builder calls ndp_gather_before before each run and ndp_gather_release after it.
 *
 * A gather begins one run before the first run that reads its buffer, so that it overlaps with a run:
 *
 *     begin gather B | run A | wait B, begin gather C | run B | wait C ...
 *
 * For each buffer, `gathered` is the block that holds it now, and `begun` the begin of a gather under way; at most one
 * of them is set. A buffer of one shard is always there. After its run, a gathered buffer is released (its block ends)
 * unless it stays in memory anyway (shared by the node, or not resharded) or one of the next two runs reads it: the
 * last unit's backward directly follows its forward. */
#include "step/program_parts.h"

bool ndp_run_reads(const ndp_builder *b, int r, int buffer) {
    const ndp_unit *u = &b->m->units[b->runs[r].unit];
    const ndp_list *list = ndp_list_of_run(b, r);
    for (int s = 0; s < NDP_SLOTS; s++)
        if (u->buffers[s] == buffer && ndp_list_names(list, NDP_BASE_PARAM + s))
            return true;
    return false;
}

static ndp_status gather_begin(ndp_builder *b, int buffer) {
    ndp_program *p = b->p;
    const ndp_owned *o = &p->owned[buffer];
    if (b->gathered[buffer] != NDP_NONE || b->begun[buffer] != NDP_NONE)
        return NDP_OK;
    if (o->shard.shards == 1) {
        b->gathered[buffer] = o->weights.block;
        return NDP_OK;
    }
    ndp_address out = o->weights;
    if (out.block == NDP_NONE) {
        size_t bytes = (size_t)(o->shard.slice * o->shard.shards) * ndp_dtype_size(b->m->buffers[buffer].storage.kept);
        NDP_TRY(ndp_block_add(p, NDP_MEM_WEIGHTS, bytes, &out.block));
    }
    return ndp_emit_begin(p,
                          &(ndp_collective_call){.op = &ndp_op_all_gather,
                                                 .group = b->m->buffers[buffer].owners,
                                                 .in = o->send,
                                                 .out = out,
                                                 .count = o->shard.slice,
                                                 .type = b->m->buffers[buffer].storage.kept,
                                                 .in_place = o->shard.in_place,
                                                 .what = b->m->buffers[buffer].name,
                                                 .buffer = buffer},
                          &b->begun[buffer]);
}

static ndp_status gather_wait(ndp_builder *b, int buffer) {
    NDP_TRY(gather_begin(b, buffer));
    if (b->gathered[buffer] != NDP_NONE)
        return NDP_OK;
    NDP_TRY(ndp_emit_wait(b->p, b->begun[buffer]));
    b->gathered[buffer] = b->p->instrs[b->begun[buffer]].call.out[0].base;
    b->begun[buffer] = NDP_NONE;
    return NDP_OK;
}

static bool needs(const ndp_builder *b, int r, int slot) {
    int buffer = b->m->units[b->runs[r].unit].buffers[slot];
    return buffer != NDP_NONE && ndp_run_reads(b, r, buffer) && b->gathered[buffer] == NDP_NONE;
}

/* The slot whose gather is to be waited for next: of those under way the one that began first, as a group's operations
 * are waited for in their order. Slots of a unit may begin apart: its backward may read some of the forward's alone.
 * -1: the run has all that it reads. */
static int next_slot(const ndp_builder *b, int r) {
    const int *buffers = b->m->units[b->runs[r].unit].buffers;
    int next = -1, first = NDP_NONE;
    for (int s = 0; s < NDP_SLOTS; s++) {
        int begun = needs(b, r, s) ? b->begun[buffers[s]] : NDP_NONE;
        if (needs(b, r, s) && (next < 0 || (begun != NDP_NONE && (first == NDP_NONE || begun < first))))
            next = s, first = begun;
    }
    return next;
}

/* Begins, or waits for, the gathers of the buffers that run r reads and that are not in memory. *any: there were some.
 */
static ndp_status gather_for(ndp_builder *b, int r, bool wait, bool *any) {
    const ndp_unit *u = &b->m->units[b->runs[r].unit];
    *any = next_slot(b, r) >= 0;
    for (int s = 0; s < NDP_SLOTS && !wait; s++)
        if (needs(b, r, s))
            NDP_TRY(gather_begin(b, u->buffers[s]));
    for (int s; wait && (s = next_slot(b, r)) >= 0;)
        NDP_TRY(gather_wait(b, u->buffers[s]));
    return NDP_OK;
}

/* Begins the gathers of the next run that needs any. Weight gradients read no parameters, so it may be two or three
 * runs away. */
static ndp_status prefetch(ndp_builder *b, int r) {
    bool any = false;
    for (int next = r + 1; next < b->n_runs && next <= r + 3 && !any; next++)
        NDP_TRY(gather_for(b, next, false, &any));
    return NDP_OK;
}

ndp_status ndp_gather_before(ndp_builder *b, int r) {
    bool any;
    NDP_TRY(gather_for(b, r, true, &any));
    return prefetch(b, r);
}

void ndp_gather_release(ndp_builder *b, int r) {
    for (int s = 0; s < NDP_SLOTS; s++) {
        int buffer = b->m->units[b->runs[r].unit].buffers[s];
        if (buffer == NDP_NONE)
            continue;
        const ndp_shard *shard = &b->p->owned[buffer].shard;
        if (shard->shards == 1 || shard->in_place || !shard->reshard)
            continue;
        bool soon = false;
        for (int next = r + 1; next < b->n_runs && next <= r + 2; next++)
            soon |= ndp_run_reads(b, next, buffer);
        if (!soon)
            b->gathered[buffer] = NDP_NONE;
    }
}
