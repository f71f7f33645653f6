/* The contract of a unit's lists (unit.h): what is in memory before one runs, and what it must have made. */
#include "placement/unit_trial.h"

#include <stdlib.h>
#include <string.h>

ndp_text ndp_trial_text(const ndp_unit_trial *run, int lane) {
    ndp_text out = ndp_lane_text(run->lanes, lane);
    ndp_text_add(&out, ": unit %s", run->lanes->items[lane].program->opts.model->units[run->unit].name);
    return out;
}

ndp_status ndp_trial_refused(const ndp_unit_trial *run, int lane, ndp_status st) {
    return NDP_FAIL(st, "placement: %s%s", ndp_trial_text(run, lane).s, ndp_error_message());
}

/* ---- what is in memory before a list runs ---- */

static ndp_status write_all(ndp_unit_trial *run, int lane, int base, size_t at, int64_t ld, ndp_dtype type,
                            const ndp_content *c) {
    size_t size = ndp_dtype_size(type);
    ndp_matrix x = {at, (size_t)ld * size, size, c->rows, c->cols};
    return ndp_tile_map_write(&run->memory[lane - run->first].bases[base], &x, c);
}

/* A matrix of one tile, from byte `at` of a slot's buffer on. */
static ndp_status write_param(ndp_unit_trial *run, int lane, int slot, size_t at, ndp_dtype type, ndp_tile t) {
    ndp_content c = ndp_content_of(&run->arena, t.rows, t.cols);
    t.share = 1, t.made = NDP_NONE;
    NDP_TRY(ndp_content_add(&c, t));
    return write_all(run, lane, NDP_BASE_PARAM + slot, at, t.cols, type, &c);
}

static ndp_status write_packed(ndp_unit_trial *run, int lane, int slot, const ndp_segments *table, int k) {
    const ndp_segment *s = &table->items[k];
    ndp_packed p = ndp_segment_packed(table, s);
    for (int64_t e = 0; e < ndp_segment_matrices(s); e++)
        for (int i = 0; i < NDP_PACKED_PARTS; i++)
            NDP_TRY(write_param(run, lane, slot, (size_t)(s->offset + e * p.bytes + p.at[i]), p.part[i].dtype,
                                (ndp_tile){.rows = p.part[i].rows > 0,
                                           .cols = p.part[i].cols,
                                           .at_row = e,
                                           .what = {NDP_THING_PACKED, ndp_thing_packed(slot, k, i)}}));
    return NDP_OK;
}

static ndp_status write_segment(ndp_unit_trial *run, int lane, int slot, ndp_dtype type, const ndp_segment *s, int k) {
    for (int64_t i = 0; i < ndp_segment_tiles(s); i++) {
        ndp_tile t = ndp_segment_tile(s, i);
        size_t at = (size_t)(s->offset + t.row * s->cols) * ndp_dtype_size(type);
        t.row = 0, t.what = (ndp_thing){NDP_THING_PARAM, ndp_thing_segment(slot, k)};
        NDP_TRY(write_param(run, lane, slot, at, type, t));
    }
    return NDP_OK;
}

/* A whole gathered buffer: its segments, as the lane's table says. */
static ndp_status write_params(ndp_unit_trial *run, int lane) {
    const ndp_lane *l = &run->lanes->items[lane];
    const ndp_unit *u = &l->program->opts.model->units[run->unit];
    ndp_dtype type = l->program->opts.model->graphs[run->graph].compute;
    for (int slot = 0; slot < NDP_SLOTS; slot++)
        for (int k = 0; u->buffers[slot] != NDP_NONE && k < l->tables[u->buffers[slot]].n; k++) {
            const ndp_segments *table = &l->tables[u->buffers[slot]];
            const ndp_segment *s = &table->items[k];
            if (table->packing != NDP_PACKING_NONE)
                NDP_TRY(write_packed(run, lane, slot, table, k));
            else
                NDP_TRY(write_segment(run, lane, slot, s->no_grad ? ndp_wide(type) : type, s, k));
        }
    return NDP_OK;
}

/* The rows of an input that the rank loads; what is of no row of the batch is the same on all ranks. */
static ndp_status write_input(ndp_unit_trial *run, int lane, int input) {
    const ndp_lane *l = &run->lanes->items[lane];
    const ndp_inputs *inputs = l->program->opts.model->inputs;
    const ndp_input *in = &inputs->items[input];
    bool batch = ndp_input_is_of_batch(in->kind) && l->program->opts.whole->opts.mode != NDP_MODEL_CACHED;
    ndp_row_run all = {0, inputs->rows[in->extent], 0}, *runs = batch ? l->rows[in->extent] : &all;
    ndp_content c = ndp_content_of(&run->arena, all.n, in->cols);
    for (int64_t i = 0; i < (batch ? l->n_rows[in->extent] : 1); i++)
        NDP_TRY(ndp_content_add(&c, (ndp_tile){.row = runs[i].row,
                                               .rows = runs[i].n,
                                               .cols = in->cols,
                                               .at_row = runs[i].at,
                                               .what = {NDP_THING_DATA, input},
                                               .share = 1,
                                               .made = NDP_NONE}));
    return write_all(run, lane, NDP_BASE_DATA + input, 0, in->cols, in->type, &c);
}

/* The rows of a stage's boundary, as another thing. */
ndp_status ndp_trial_write_boundary(ndp_unit_trial *run, int lane, int base, const ndp_content *from, ndp_thing what,
                                    ndp_share share) {
    ndp_content c = ndp_content_of(&run->arena, from->rows, from->cols);
    for (int i = 0; i < from->n; i++) {
        ndp_tile t = from->tiles[i];
        t.what = what, t.share = share, t.made = NDP_NONE;
        NDP_TRY(ndp_content_add(&c, t));
    }
    return write_all(run, lane, base, 0, c.cols,
                     run->lanes->items[lane].program->opts.model->graphs[run->graph].compute, &c);
}

ndp_status ndp_trial_write_before(ndp_unit_trial *run, const ndp_content *before) {
    const ndp_graph *g = run->uses.graph;
    for (int i = 0; i < run->n; i++) {
        int lane = run->first + i;
        const ndp_inputs *inputs = run->lanes->items[lane].program->opts.model->inputs;
        NDP_TRY(write_params(run, lane));
        for (int k = 0; k < inputs->n; k++)
            NDP_TRY(write_input(run, lane, k));
        if (g->input != NDP_NONE)
            NDP_TRY(ndp_trial_write_boundary(run, lane, NDP_BASE_INPUT, &before[i],
                                             (ndp_thing){NDP_THING_VALUE, g->input}, 1));
    }
    return NDP_OK;
}

/* ---- what a list must have made ---- */

/* What is in the memory of a boundary, all of it of `kind` of the value `value` of the whole graph. Whichever graph
 * names it, it is then the same thing. */
static ndp_status read_boundary(const ndp_unit_trial *run, ndp_operand o, int lane, ndp_thing_kind kind, int value,
                                const char *name, ndp_content *out) {
    ndp_call c = {.op = &ndp_op_copy, .in = &o, .n_in = 1, .what = name};
    ndp_rule r = {.uses = &run->uses, .g = run->uses.graph, .c = &c, .arena = out->arena};
    ndp_text where = ndp_trial_text(run, lane);
    size_t size = ndp_dtype_size(o.view.dtype);
    ndp_matrix x = {0, (size_t)o.view.ld * size, size, o.view.rows, o.view.cols};
    r.where = where.s;
    r.in[0] = ndp_content_of(out->arena, x.rows, x.cols);
    NDP_TRY(ndp_tile_map_read(&run->memory[lane - run->first].bases[o.base], &x, &r.in[0]));
    NDP_TRY(ndp_expect(&r, 0, kind, value, kind == NDP_THING_VALUE));
    for (int k = 0; k < r.in[0].n; k++)
        r.in[0].tiles[k].what = (ndp_thing){NDP_THING_VALUE, 0}, r.in[0].tiles[k].made = NDP_NONE;
    ndp_content_join(&r.in[0]);
    *out = r.in[0];
    return NDP_OK;
}

/* The complete output, the same part of it as where the unit was judged before. */
ndp_status ndp_trial_take_output(ndp_unit_trial *run, ndp_content *out) {
    for (int i = 0; i < run->n; i++) {
        const ndp_graph *g = &run->lanes->items[run->first + i].program->opts.model->graphs[run->graph];
        ndp_operand o = {.base = NDP_BASE_OUTPUT, .value = NDP_NONE, .view = g->values[g->output].view};
        out[i] = ndp_content_of(&run->arena, 0, 0);
        NDP_TRY(read_boundary(run, o, run->first + i, NDP_THING_VALUE, run->uses.graph->output, "its output", &out[i]));
    }
    return NDP_OK;
}

/* Of one lane: the complete gradient, cut as `before`. */
static ndp_status check_grad_input(ndp_unit_trial *run, int lane, const ndp_content *before) {
    const ndp_graph *g = run->uses.graph, *local = &run->lanes->items[lane].program->opts.model->graphs[run->graph];
    ndp_content is = ndp_content_of(&run->arena, 0, 0);
    ndp_operand o = {.base = NDP_BASE_GRAD_INPUT, .value = NDP_NONE};
    if (local->grad_input == NDP_NONE)
        return ndp_trial_refuse(run, lane, " makes no gradient of its input");
    o.view = (ndp_view){NULL, local->values[local->grad_input].view.dtype, before->rows, before->cols, before->cols};
    NDP_TRY(read_boundary(run, o, lane, NDP_THING_GRADIENT, g->input, "the gradient of its input", &is));
    return ndp_contents_equal(&is, before)
               ? NDP_OK
               : ndp_trial_refuse(run, lane,
                                  ": the gradient of its input is not complete, or of other rows than its input");
}

ndp_status ndp_trial_check_grad_input(ndp_unit_trial *run, const ndp_content *before) {
    const ndp_graph *g = run->uses.graph;
    for (int i = 0; i < run->n && g->input != NDP_NONE && !g->ends_backward; i++)
        NDP_TRY(check_grad_input(run, run->first + i, &before[i]));
    return NDP_OK;
}

static int by_place(const void *a, const void *b) {
    const ndp_contribution *x = a, *y = b;
    return x->slot != y->slot ? x->slot - y->slot : (x->first > y->first) - (x->first < y->first);
}

/* Where rows [first, + rows) of a tensor's part, of a stack those of all members below each other, are among those of
 * the segment; negative: not all of them are there. */
static int64_t rows_here(const ndp_segment *s, int64_t first, int64_t rows) {
    int64_t number = s->part[0] > 0 ? first / s->part[0] : 0, row = first - number * s->part[0],
            member = number - s->stack_first;
    int64_t at = row - (s->first[0] - s->base[0]);
    int64_t room = s->rows == s->part[0] ? (ndp_segment_matrices(s) - member) * s->rows : s->rows;
    bool fits = member >= 0 && member < ndp_segment_matrices(s) && at >= 0 && at + rows <= room;
    return fits ? member * s->rows + at : -1;
}

/* A tile of a gradient lies where the table has these elements. */
static ndp_status take_tile(ndp_unit_trial *run, int lane, int slot, const ndp_mapped_tile *t, ndp_contribution *out) {
    const ndp_lane *l = &run->lanes->items[lane];
    int segment = t->tile.what.id % 64;
    const ndp_segment *s = &l->tables[l->program->opts.model->units[run->unit].buffers[slot]].items[segment];
    int64_t row = rows_here(s, t->tile.at_row, t->tile.rows), col = t->tile.at_col - (s->first[1] - s->base[1]);
    int64_t place = s->offset + row * s->cols + col;
    const ndp_first_write *w = &run->memory[lane - run->first].writes[slot][segment];
    bool fits = row >= 0 && col >= 0 && col + t->tile.cols <= s->cols;
    if (!fits || t->at != (size_t)place * t->size || (t->tile.rows > 1 && t->ld != (size_t)s->cols * t->size))
        return ndp_trial_refuse(run, lane,
                                ": the gradient of %s, rows from %lld and columns from %lld on, is written where other "
                                "elements are",
                                s->name, (long long)t->tile.at_row, (long long)t->tile.at_col);
    if (t->tile.rows > 1 && t->tile.cols != s->cols)
        return ndp_trial_refuse(run, lane, ": the gradient of %s is written in parts of its rows", s->name);
    *out = (ndp_contribution){slot, segment, place, t->tile.rows * t->tile.cols, t->tile.share, w->pgrad, w->adds};
    return NDP_OK;
}

ndp_status ndp_trial_take_made(ndp_unit_trial *run, int lane, ndp_arena *arena, ndp_unit_made *out) {
    ndp_unit_memory *m = &run->memory[lane - run->first];
    int64_t n = 0;
    for (int s = 0; s < NDP_SLOTS; s++)
        n += m->bases[NDP_BASE_PGRAD + s].n;
    *out = (ndp_unit_made){.n = 0};
    NDP_TRY(NDP_NEW(arena, n, out->items));
    memcpy(out->sums, m->sums, sizeof out->sums);
    for (int s = 0; s < NDP_SLOTS; s++)
        for (int64_t i = 0; i < m->bases[NDP_BASE_PGRAD + s].n; i++)
            NDP_TRY(take_tile(run, lane, s, &m->bases[NDP_BASE_PGRAD + s].items[i], &out->items[out->n++]));
    qsort(out->items, (size_t)out->n, sizeof *out->items, by_place);
    return NDP_OK;
}
