/* Reductions of gradients: to their owners (reduce_scatter), over the replicas (all_reduce), and, at the end, over the
 * other groups whose ranks hold the same parameters (segment.sums). The builder calls ndp_reduce_plan once,
 * ndp_reduce_bind and ndp_reduce_after for each run, and ndp_reduce_finish and ndp_reduce_copies after the last one.
 *
 * A pipeline of two: a reduction is waited for when the next one begins, so it overlaps with the backward of a unit.
 *
 *     backward of unit | 3 | 2 | 1 | 0 |
 *     reduce_scatter       | 3 | 2 | 1 | 0 |
 *     all_reduce               | 3 | 2 | 1 | 0 |
 *
 * A gradient is reduced when every micro-batch that has begun to write it has finished, or (reduce_once) only when all
 * have: micro-batches that interleave add to the same block. The first reduction of a step overwrites the owners'
 * slices, later ones add; the replicas sum after the last one. Segments that this rank's runs never write count as 0:
 * they are zeroed before the reduction. */
#include "step/program_parts.h"

#include <string.h>

static ndp_status wait_for_replicas(ndp_builder *b) {
    int begun = b->pending_replicas;
    b->pending_replicas = NDP_NONE;
    return begun == NDP_NONE ? NDP_OK : ndp_emit_wait(b->p, begun);
}

static ndp_status begin_all_reduce(ndp_builder *b, int buffer) {
    const ndp_owned *o = &b->p->owned[buffer];
    NDP_TRY(wait_for_replicas(b));
    return ndp_emit_begin(b->p,
                          &(ndp_collective_call){.op = &ndp_op_all_reduce,
                                                 .group = o->shard.over,
                                                 .in = o->grad,
                                                 .out = o->grad,
                                                 .count = o->shard.slice,
                                                 .type = b->m->buffers[buffer].storage.gradient,
                                                 .what = b->m->buffers[buffer].name,
                                                 .buffer = buffer},
                          &b->pending_replicas);
}

/* Advances the pipeline: waits for the all_reduce and the scatter under way, and begins the all_reduce of what the
 * scatter has summed. */
static ndp_status advance_reductions(ndp_builder *b) {
    NDP_TRY(wait_for_replicas(b));
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

/* Zeroes the segments of a gradient that no run has written: on a rank that has the head alone of a tied buffer, those
 * that only the embedding reads. The other stage's gradient of them is added (ndp_reduce_copies). */
static ndp_status zero_unwritten(ndp_builder *b, int buffer) {
    const ndp_buffer *of = &b->m->buffers[buffer];
    const ndp_gradient *g = &b->gradients[buffer];
    const ndp_op_attr none = {0};
    for (int k = 0; k < of->segments.n; k++) {
        const ndp_segment *s = &of->segments.items[k];
        ndp_address at = {g->block, (size_t)s->offset * ndp_dtype_size(of->storage.gradient)};
        ndp_operand all = ndp_operand_at(at, ndp_segment_matrices(s) * s->rows, s->cols, of->storage.gradient);
        if (!(g->written >> k & 1) && s->rows > 0 && s->cols > 0)
            NDP_TRY(ndp_emit_kernel(b->p, &ndp_op_zero, &none, &all, 1, &all, 1, s->name));
    }
    return NDP_OK;
}

/* Begins the reduction of a buffer's gradient; `last`: no run of this step writes it again. */
static ndp_status reduce(ndp_builder *b, int buffer, bool last) {
    const ndp_owned *o = &b->p->owned[buffer];
    ndp_gradient *g = &b->gradients[buffer];
    if (last || o->shard.shards > 1)
        NDP_TRY(zero_unwritten(b, buffer));
    NDP_TRY(advance_reductions(b));
    if (o->shard.shards == 1)
        return last && o->shard.replicas > 1 ? begin_all_reduce(b, buffer) : NDP_OK;
    NDP_TRY(ndp_emit_begin(b->p,
                           &(ndp_collective_call){.op = &ndp_op_reduce_scatter,
                                                  .group = b->m->buffers[buffer].owners,
                                                  .in = {g->block, 0},
                                                  .out = o->grad,
                                                  .count = o->shard.slice,
                                                  .type = b->m->buffers[buffer].storage.gradient,
                                                  .add = g->reduced,
                                                  .what = b->m->buffers[buffer].name,
                                                  .buffer = buffer},
                           &b->pending_scatter));
    b->scatter_is_last = last;
    g->reduced = true;
    g->block = NDP_NONE;
    g->written = 0;
    return NDP_OK;
}

/* True if run r writes the gradient of its unit's buffer in slot s. A buffer in several slots counts in the first. */
static bool writes(const ndp_builder *b, int r, int s) {
    const ndp_list *list = ndp_list_of_run(b, r);
    const int *buffers = b->m->units[b->runs[r].unit].buffers;
    bool found = false;
    for (int earlier = 0; earlier < s; earlier++)
        if (buffers[earlier] == buffers[s])
            return false;
    for (int k = 0; k < list->n_pgrads; k++)
        found |= buffers[list->pgrads[k].slot] == buffers[s];
    return buffers[s] != NDP_NONE && found;
}

void ndp_reduce_plan(ndp_builder *b) {
    for (int r = 0; r < b->n_runs; r++)
        for (int s = 0; s < NDP_SLOTS; s++)
            if (writes(b, r, s)) {
                ndp_gradient *g = &b->gradients[b->m->units[b->runs[r].unit].buffers[s]];
                g->writes[b->runs[r].micro_batch].left++;
                g->last = r;
            }
}

ndp_status ndp_reduce_after(ndp_builder *b, int r) {
    for (int s = 0; s < NDP_SLOTS; s++) {
        if (!writes(b, r, s))
            continue;
        int buffer = b->m->units[b->runs[r].unit].buffers[s];
        ndp_gradient *g = &b->gradients[buffer];
        ndp_gradient_writes *w = &g->writes[b->runs[r].micro_batch];
        g->open += !w->begun;
        w->begun = true;
        if (--w->left == 0 && --g->open == 0 && (g->last == r || !b->p->opts.step.reduce_once))
            NDP_TRY(reduce(b, buffer, g->last == r));
    }
    return NDP_OK;
}

ndp_status ndp_reduce_bind(ndp_builder *b, int r, ndp_instr *in) {
    const ndp_list *list = ndp_list_of_run(b, r);
    for (int k = 0; k < list->n_pgrads; k++) {
        int slot = list->pgrads[k].slot, buffer = b->m->units[b->runs[r].unit].buffers[slot];
        const ndp_owned *o = &b->p->owned[buffer];
        ndp_gradient *g = &b->gradients[buffer];
        if (o->shard.shards == 1)
            g->block = o->grad.block;
        else if (g->block == NDP_NONE)
            NDP_TRY(ndp_block_add(b->p, NDP_MEM_GRADIENTS,
                                  (size_t)(o->shard.slice * o->shard.shards) *
                                      ndp_dtype_size(b->m->buffers[buffer].storage.gradient),
                                  &g->block));
        in->bases[NDP_BASE_PGRAD + slot] = g->block;
        uint64_t bits = (((uint64_t)1 << list->pgrads[k].segments) - 1) << list->pgrads[k].segment;
        if (g->written & bits)
            in->accumulate |= 1u << k;
        g->written |= bits;
    }
    return NDP_OK;
}

/* Begins the sum of neighbours over a group, in place; waits first for the oldest of MOST_SUMS pending ones. */
enum { MOST_SUMS = 4 };
typedef struct sums {
    int begun[MOST_SUMS], n;
} sums;

static ndp_status wait_for_sums(ndp_builder *b, sums *pending) {
    for (int k = pending->n > MOST_SUMS ? pending->n - MOST_SUMS : 0; k < pending->n; k++)
        NDP_TRY(ndp_emit_wait(b->p, pending->begun[k % MOST_SUMS]));
    pending->n = 0;
    return NDP_OK;
}

/* Neighbours among the pieces of a slice that are summed over the same groups, with the gaps between them. */
typedef struct neighbours {
    ndp_piece first;
    int64_t count;
    const char *what;
} neighbours;

static bool next_neighbours(const ndp_builder *b, int buffer, int *cursor, neighbours *out) {
    const ndp_segments *s = &b->m->buffers[buffer].segments;
    const ndp_shard *shard = &b->p->owned[buffer].shard;
    ndp_piece next;
    if (!ndp_segments_piece(s, shard->shards, shard->index, cursor, &out->first))
        return false;
    out->count = out->first.count;
    out->what = out->first.segment->name;
    for (int at = *cursor; ndp_segments_piece(s, shard->shards, shard->index, &at, &next); *cursor = at) {
        if (at != *cursor + 1 || next.segment->sums != out->first.segment->sums)
            break;
        out->count = next.slice_first + next.count - out->first.slice_first;
        out->what = b->m->buffers[buffer].name;
    }
    return true;
}

static ndp_status sum_neighbours(ndp_builder *b, int buffer, const neighbours *n, ndp_group_kind group, sums *pending) {
    ndp_dtype type = b->m->buffers[buffer].storage.gradient;
    ndp_address at = b->p->owned[buffer].grad;
    at.offset += (size_t)n->first.slice_first * ndp_dtype_size(type);
    if (pending->n >= MOST_SUMS)
        NDP_TRY(ndp_emit_wait(b->p, pending->begun[pending->n % MOST_SUMS]));
    return ndp_emit_begin(b->p,
                          &(ndp_collective_call){.op = &ndp_op_all_reduce,
                                                 .group = group,
                                                 .in = at,
                                                 .out = at,
                                                 .count = n->count,
                                                 .type = type,
                                                 .what = n->what,
                                                 .buffer = buffer},
                          &pending->begun[pending->n++ % MOST_SUMS]);
}

/* Sums neighbours over the groups of the stage, or of several, one after another. */
static ndp_status sum_over(ndp_builder *b, int buffer, const neighbours *n, bool stages, sums *pending) {
    bool begun = false;
    for (int kind = 0; kind < NDP_GROUPS; kind++) {
        ndp_group_kind group = (ndp_group_kind)kind;
        if (!(n->first.segment->sums & NDP_GROUP_BIT(kind)) || group == b->p->owned[buffer].shard.over ||
            ndp_group_spans(group, NDP_PP) != stages || ndp_mesh_group(&b->p->opts.step.mesh, group).count == 1)
            continue;
        if (begun)
            NDP_TRY(wait_for_sums(b, pending));
        NDP_TRY(sum_neighbours(b, buffer, n, group, pending));
        begun = true;
    }
    return NDP_OK;
}

static ndp_status sum_all(ndp_builder *b, bool stages) {
    sums pending = {.n = 0};
    neighbours n;
    for (int i = 0; i < b->m->n_buffers; i++)
        for (int cursor = 0; b->m->buffers[i].trainable && next_neighbours(b, i, &cursor, &n);)
            NDP_TRY(sum_over(b, i, &n, stages, &pending));
    return wait_for_sums(b, &pending);
}

/* Another stage may still compute, so sums with it come last. */
ndp_status ndp_reduce_copies(ndp_builder *b) {
    NDP_TRY(sum_all(b, false));
    return sum_all(b, true);
}
