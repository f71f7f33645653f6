/* What lanes with one program share: its buffers, their stretches and pieces, blocks that take turns, and measures of
 * elements. */
#include "placement/step_buffer.h"

#include <stdlib.h>

static int by_first(const void *a, const void *b) {
    const ndp_stretch *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

ndp_status ndp_step_stretches(const ndp_update_groups *g, const ndp_segments *s, ndp_arena *arena,
                              ndp_step_buffer *out) {
    NDP_TRY(NDP_NEW(arena, s->n, out->stretches));
    for (int k = 0; k < s->n; k++) {
        const ndp_segment *seg = &s->items[k];
        if (seg->length > 0)
            out->stretches[out->n++] =
                (ndp_stretch){seg->offset, seg->offset + seg->length, k,
                              ndp_optimizers[ndp_update_opts_of(g, seg)->name]->whole.transform != NULL};
    }
    qsort(out->stretches, (size_t)out->n, sizeof *out->stretches, by_first);
    return NDP_OK;
}

static bool trains(const ndp_program *p) { return p->opts.model->opts.mode == NDP_MODEL_TRAIN; }

/* A buffer's place among its owners is the slice it says. */
static ndp_status take_buffer(const ndp_lanes *l, ndp_step_program *s, int i, ndp_arena *arena) {
    const ndp_program *p = s->program;
    const ndp_buffer *b = &p->opts.model->buffers[i];
    const ndp_claims *claims = l->claims;
    const ndp_shard *shard = &p->owned[i].shard;
    ndp_group owners = ndp_mesh_group(&p->opts.step.mesh, b->owners);
    ndp_step_buffer *out = &s->buffers[i];
    *out = (ndp_step_buffer){.name = b->name,
                             .whole = ndp_whole_buffer(p->opts.whole, b->name),
                             .shard = *shard,
                             .trainable = trains(p) && b->trainable,
                             .moves = trains(p) && b->moves};
    NDP_TRY(ndp_step_stretches(&p->groups, &b->segments, arena, out));
    int64_t end = ndp_step_buffer_end(out);
    if (out->whole == NDP_NONE || shard->shards != owners.count || shard->index != owners.rank ||
        shard->slice * shard->shards < end)
        return NDP_FAIL(NDP_EBUG,
                        "placement: rank %d: slice %d of %d, of %lld elements each, of %s: it is rank %d of %d in "
                        "group %s, and the buffer ends at element %lld",
                        p->opts.step.mesh.rank, shard->index, shard->shards, (long long)shard->slice, b->name,
                        owners.rank, owners.count, ndp_group_name(b->owners), (long long)end);
    s->local[out->whole] = i;
    if (!out->trainable)
        return NDP_OK;
    out->n_pieces = claims->pieces(claims->user, p, &b->segments, i, shard->shards, shard->index, NULL);
    NDP_TRY(NDP_NEW(arena, out->n_pieces * s->columns, out->pieces));
    claims->pieces(claims->user, p, &b->segments, i, shard->shards, shard->index, out->pieces);
    return NDP_OK;
}

static void find_written(ndp_step_program *s, int graph, int phase) {
    const ndp_list *list = &s->program->opts.units[graph].lists[phase];
    for (int i = 0; i < list->n; i++)
        for (int k = 0; k < list->calls[i].n_out; k++)
            if (list->calls[i].out[k].base != NDP_NONE)
                s->written[graph][phase] |= (uint64_t)1 << list->calls[i].out[k].base;
}

/* ---- blocks that take turns ---- */

static bool share_bytes(const ndp_block *a, const ndp_block *b) {
    return a->region == b->region && a->bytes > 0 && b->bytes > 0 && a->offset < b->offset + b->bytes &&
           b->offset < a->offset + a->bytes;
}

static bool may_live_together(const ndp_block *a, const ndp_block *b) {
    bool lives = a->life.first >= 0 && b->life.first >= 0;
    return a->persistent || b->persistent || (lives && ndp_lives_meet(&a->life, &b->life));
}

/* A repeated range names a block and means the next one in every iteration (ndp_ring). Two iterations meet some of them
 * alone, so each is compared with all others that live meanwhile, whichever iterations are executed. */
static ndp_status check_block(const ndp_program *p, int block) {
    for (int i = 0; i < p->n_blocks; i++) {
        const ndp_block *a = &p->blocks[block], *b = &p->blocks[i];
        if (i != block && share_bytes(a, b) && may_live_together(a, b))
            return NDP_FAIL(NDP_EBUG,
                            "placement: rank %d: block %d, which takes turns with %d others, has bytes of block %d, "
                            "which is there at the same time",
                            p->opts.step.mesh.rank, block, a->ring.n - 1, i);
    }
    return NDP_OK;
}

ndp_status ndp_step_program_init(const ndp_lanes *l, const ndp_program *p, ndp_arena *arena, ndp_step_program *out) {
    const ndp_model *m = p->opts.model;
    *out = (ndp_step_program){.program = p, .columns = ndp_piece_columns(&p->groups)};
    NDP_TRY(NDP_NEW(arena, m->n_buffers, out->buffers));
    NDP_TRY(NDP_NEW(arena, p->opts.whole->n_buffers, out->local));
    for (int i = 0; i < p->opts.whole->n_buffers; i++)
        out->local[i] = NDP_NONE;
    for (int i = 0; i < m->n_buffers; i++)
        NDP_TRY(take_buffer(l, out, i, arena));
    for (int i = 0; i < m->n_graphs * NDP_PHASES; i++)
        find_written(out, i / NDP_PHASES, i % NDP_PHASES);
    for (int i = 0; i < p->n_blocks; i++)
        if (p->blocks[i].ring.n > 1)
            NDP_TRY(check_block(p, i));
    return ndp_step_pinned_check(p, arena);
}

bool ndp_step_next_stretch(const ndp_step_buffer *b, int *k, int64_t low, int64_t high, ndp_stretch *out) {
    while (*k < b->n) {
        *out = b->stretches[(*k)++];
        out->first = out->first > low ? out->first : low;
        out->end = out->end < high ? out->end : high;
        if (out->first < out->end)
            return true;
    }
    return false;
}

/* ---- measures ---- */

/* Of one matrix: at most a part of a first row, whole rows, and a part of a last one. */
static ndp_share measure(const ndp_segment *s, ndp_dim_key tensor, int64_t first, int64_t count) {
    int64_t row = first / s->cols, col = first % s->cols;
    ndp_share sum = 0;
    if (col > 0) {
        int64_t n = s->cols - col < count ? s->cols - col : count;
        sum = ndp_segment_share(s, tensor, row++, 1, col, n);
        count -= n;
    }
    sum = ndp_share_add(sum, ndp_segment_share(s, tensor, row, count / s->cols, 0, s->cols));
    return ndp_share_add(sum, ndp_segment_share(s, tensor, row + count / s->cols, 1, 0, count % s->cols));
}

/* Each member of a stack has a part of the whole, and its elements shares of that. */
ndp_share ndp_step_measure(const ndp_segment *s, int whole, int segment, int64_t first, int64_t count) {
    ndp_dim_key tensor = ndp_dim_make(ndp_dim_make(0, 't'), (uint64_t)(whole * NDP_MOST_SEGMENTS + segment));
    int64_t size = s->rows * s->cols, n = ndp_segment_matrices(s), end = first + count;
    ndp_share sum = 0;
    if (!ndp_segment_is_stack(s))
        return measure(s, tensor, first, count);
    for (int64_t i = 0; i < n; i++) {
        int64_t low = first > i * size ? first : i * size, high = end < (i + 1) * size ? end : (i + 1) * size;
        ndp_share member =
            ndp_range_share(ndp_dim_make(tensor, 3), s->stack_whole, s->stack_first + i, s->stack_first + i + 1);
        if (low < high)
            sum = ndp_share_add(sum, ndp_share_mul(member, measure(s, tensor, low - i * size, high - low)));
    }
    return sum;
}
