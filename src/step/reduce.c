/* Reductions of gradients: to their owners, over the replicas, over the tensor axis. One is waited for when the next
 * one begins, so that it has the backward of one unit to hide behind, and the all_reduce of the replicas that of the
 * unit after. */
#include "step/builder.h"

#include <string.h>

static ndp_status begin_all_reduce(ndp_builder *b, int buffer) {
    const ndp_owned *o = &b->p->owned[buffer];
    return ndp_emit_begin(b->p,
                          &(ndp_collective_call){.op = &ndp_op_all_reduce,
                                                 .group = NDP_GROUP_REPLICATE,
                                                 .in = o->grad,
                                                 .out = o->grad,
                                                 .count = o->shard.slice,
                                                 .type = b->m->opts.master,
                                                 .what = b->m->buffers[buffer].name,
                                                 .buffer = buffer},
                          &b->pending_replicas);
}

/* Moves the reductions under way on by one: the replicas' one ends, the scatter ends and goes on to the replicas. */
static ndp_status advance_reductions(ndp_builder *b) {
    if (b->pending_replicas != NDP_NONE)
        NDP_TRY(ndp_emit_wait(b->p, b->pending_replicas));
    b->pending_replicas = NDP_NONE;
    if (b->pending_scatter == NDP_NONE)
        return NDP_OK;
    int buffer = b->p->instrs[b->pending_scatter].buffer;
    NDP_TRY(ndp_emit_wait(b->p, b->pending_scatter));
    b->pending_scatter = NDP_NONE;
    return b->scatter_is_last && b->p->owned[buffer].shard.replicas > 1 ? begin_all_reduce(b, buffer) : NDP_OK;
}

ndp_status ndp_reduce_finish(ndp_builder *b) {
    while (b->pending_scatter != NDP_NONE || b->pending_replicas != NDP_NONE)
        NDP_TRY(advance_reductions(b));
    return NDP_OK;
}

/* The gradient of a buffer is whole for this micro-batch: it goes to its owners, after the last one to the replicas. */
static ndp_status reduce(ndp_builder *b, int buffer, int micro_batch) {
    const ndp_owned *o = &b->p->owned[buffer];
    bool last = micro_batch == b->p->opts.accumulation - 1;
    NDP_TRY(advance_reductions(b));
    if (o->shard.shards == 1)
        return last && o->shard.replicas > 1 ? begin_all_reduce(b, buffer) : NDP_OK;
    NDP_TRY(ndp_emit_begin(b->p,
                           &(ndp_collective_call){.op = &ndp_op_reduce_scatter,
                                                  .group = NDP_GROUP_SHARD,
                                                  .in = {b->grad[buffer], 0},
                                                  .out = o->grad,
                                                  .count = o->shard.slice,
                                                  .type = b->m->opts.master,
                                                  .add = micro_batch > 0,
                                                  .what = b->m->buffers[buffer].name,
                                                  .buffer = buffer},
                           &b->pending_scatter));
    b->scatter_is_last = last;
    b->grad[buffer] = NDP_NONE;
    b->written[buffer] = 0;
    return NDP_OK;
}

ndp_status ndp_reduce_after(ndp_builder *b, int r) {
    for (int s = 0; s < NDP_SLOTS; s++) {
        int buffer = b->m->units[b->runs[r].unit].buffers[s];
        if (buffer != NDP_NONE && b->last_write[buffer] == r)
            NDP_TRY(reduce(b, buffer, b->runs[r].micro_batch));
    }
    return NDP_OK;
}

void ndp_reduce_plan(ndp_builder *b, int first) {
    for (int r = first; r < b->n_runs && b->runs[r].micro_batch == b->runs[first].micro_batch; r++) {
        const ndp_list *list = ndp_list_of_run(b, r);
        for (int k = 0; k < list->n_pgrads; k++)
            b->last_write[b->m->units[b->runs[r].unit].buffers[list->pgrads[k].slot]] = r;
    }
}

ndp_status ndp_reduce_bind(ndp_builder *b, int r, ndp_instr *in) {
    const ndp_list *list = ndp_list_of_run(b, r);
    for (int k = 0; k < list->n_pgrads; k++) {
        int slot = list->pgrads[k].slot, buffer = b->m->units[b->runs[r].unit].buffers[slot];
        const ndp_owned *o = &b->p->owned[buffer];
        if (o->shard.shards == 1)
            b->grad[buffer] = o->grad.block;
        else if (b->grad[buffer] == NDP_NONE)
            NDP_TRY(ndp_block_add(b->p, NDP_MEM_GRADIENTS,
                                  (size_t)(o->shard.slice * o->shard.shards) * ndp_dtype_size(b->m->opts.master),
                                  &b->grad[buffer]));
        in->bases[NDP_BASE_PGRAD + slot] = b->grad[buffer];
        uint64_t bit = (uint64_t)1 << list->pgrads[k].segment;
        if (b->written[buffer] & bit)
            in->accumulate |= 1u << k;
        b->written[buffer] |= bit;
    }
    return NDP_OK;
}

ndp_status ndp_reduce_copies(ndp_builder *b) {
    enum { MOST = 4 };
    int begun[MOST], n = 0;
    for (int i = 0; i < b->m->n_buffers; i++) {
        const ndp_owned *o = &b->p->owned[i];
        ndp_piece piece;
        for (int c = 0; ndp_segments_piece(&b->m->buffers[i].segments, o->shard.shards, o->shard.index, &c, &piece);) {
            if (piece.segment->sum == NDP_GRADIENT_WHOLE)
                continue;
            if (n >= MOST)
                NDP_TRY(ndp_emit_wait(b->p, begun[n % MOST]));
            ndp_address at = {o->grad.block,
                              o->grad.offset + (size_t)piece.slice_first * ndp_dtype_size(b->m->opts.master)};
            NDP_TRY(ndp_emit_begin(b->p,
                                   &(ndp_collective_call){.op = &ndp_op_all_reduce,
                                                          .group = piece.segment->sum == NDP_GRADIENT_OVER_TP
                                                                       ? NDP_GROUP_TP
                                                                       : NDP_GROUP_KV,
                                                          .in = at,
                                                          .out = at,
                                                          .count = piece.count,
                                                          .type = b->m->opts.master,
                                                          .what = piece.segment->name,
                                                          .buffer = i},
                                   &begun[n++ % MOST]));
        }
    }
    for (int k = n > MOST ? n - MOST : 0; k < n; k++)
        NDP_TRY(ndp_emit_wait(b->p, begun[k % MOST]));
    return NDP_OK;
}
