/* What an update takes that makes whole matrices (Muon), of the first owner of each slice: the calls that
 * step/projections.c emits for it, priced without its program. Other optimizers pass memory once, and experts over ep
 * have other owners: no bound counts them. */
#include "plan/search_bounds.h"

#include "optim/groups.h"
#include "parallel/apply.h"

#include <math.h>

/* Seconds of the transform of one member of a segment: the whole matrix where the tensor axis cuts it. */
static ndp_status member_seconds(const ndp_search_bounds *b, const ndp_op *op, const ndp_segment *s, int tp,
                                 ndp_dtype type, ndp_arena *arena, double *out) {
    const ndp_op_attr none = {0};
    const ndp_address at = {NDP_NONE, 0};
    const ndp_operand matrix = ndp_operand_at(at, tp > 1 ? s->part[0] : s->rows, tp > 1 ? s->part[1] : s->cols, type);
    ndp_call c;
    NDP_TRY(ndp_call_init(&c, arena, op, &none, &matrix, 1, &matrix, 1));
    *out = ndp_device_kernel(b->price, false, &c);
    return NDP_OK;
}

/* Of the members that the first of `shards` slices of a buffer has elements of. */
static ndp_status buffer_seconds(const ndp_search_bounds *b, const ndp_update_groups *groups, const ndp_buffer *buffer,
                                 int tp, int shards, ndp_arena *arena, double *sum) {
    ndp_piece p;
    for (int cursor = 0; ndp_segments_piece(&buffer->segments, shards, 0, &cursor, &p);) {
        const ndp_op *op = ndp_optimizers[ndp_update_opts_of(groups, p.segment)->name]->whole.transform;
        int64_t size = p.segment->rows * p.segment->cols, begin = p.slice_first - p.segment->offset;
        double one;
        if (!op)
            continue;
        NDP_TRY(member_seconds(b, op, p.segment, tp, ndp_wide(buffer->storage.gradient), arena, &one));
        *sum += one * (double)((begin + p.count + size - 1) / size - begin / size);
    }
    return NDP_OK;
}

static ndp_status price_units(const ndp_search_bounds *b, const ndp_update_groups *groups, const ndp_model *m,
                              ndp_arena *arena, ndp_update_cost *out) {
    for (int i = 0; i < m->n_units; i++) {
        double unit = 0;
        for (int k = 0; k < NDP_SLOTS; k++) {
            int buffer = m->units[i].buffers[k];
            if (buffer != NDP_NONE && m->buffers[buffer].trainable)
                NDP_TRY(buffer_seconds(b, groups, &m->buffers[buffer], out->tp, out->shards, arena, &unit));
        }
        out->all += unit;
        if (i > 0 && i < m->n_units - 1)
            out->inner = i == 1 ? unit : fmin(out->inner, unit);
    }
    return NDP_OK;
}

static bool has_transforms(const ndp_update_groups *groups) {
    bool any = false;
    for (int i = 0; i < groups->n_used; i++)
        any |= ndp_optimizers[groups->used[i]]->whole.transform != NULL;
    return any;
}

static ndp_status make_update(const ndp_search_bounds *b, ndp_arena *arena, ndp_update_cost *out) {
    const ndp_stages one = {0};
    ndp_job job = *b->d->job;
    const ndp_optimizer_opts opts = ndp_job_optimizer(&job);
    ndp_update_groups groups;
    ndp_engine_opts e;
    ndp_model cut;
    NDP_TRY(ndp_update_groups_make(&opts, arena, &groups));
    if (!has_transforms(&groups))
        return NDP_OK;
    job.layout = (ndp_layout)NDP_LAYOUT_ONE;
    job.layout.size[NDP_TP] = out->tp;
    job.layout.size[NDP_DP_SHARD] = job.world / out->tp;
    job.model.rows = b->whole_rows;
    NDP_TRY(ndp_job_engine(&job, 0, &b->d->exec, &e));
    NDP_TRY(ndp_parallel_apply(&b->whole, &e.step.mesh, &e.step.parallel, &one, &cut));
    ndp_status st = price_units(b, &groups, &cut, arena, out);
    ndp_model_release(&cut);
    return st;
}

ndp_status ndp_first_update(ndp_search_bounds *b, const ndp_plan_way *c, ndp_update_cost *out) {
    const int *size = c->layout.size;
    ndp_arena arena = {0};
    *out = (ndp_update_cost){.tp = size[NDP_TP], .shards = size[NDP_DP_SHARD] * size[NDP_CP] * size[NDP_SP]};
    if (size[NDP_EP] > 1)
        return NDP_OK;
    for (int i = 0; i < b->n_updates; i++)
        if (b->updates[i].tp == out->tp && b->updates[i].shards == out->shards) {
            *out = b->updates[i];
            return NDP_OK;
        }
    NDP_TRY(ndp_array_reserve(&b->updates, &b->update_capacity, b->n_updates + 1, sizeof *b->updates));
    ndp_status st = make_update(b, &arena, out);
    ndp_arena_release(&arena);
    if (st == NDP_OK)
        b->updates[b->n_updates++] = *out;
    return st;
}
