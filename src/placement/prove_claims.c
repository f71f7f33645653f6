/* What no call says, proven over all coordinates: the tables of the ranks of tp tile each tensor; the tables of pieces
 * of all slices name each element once, with the numbers of its segment; rows tile a micro-batch, samples a batch. */
#include "placement/step_world.h"

/* ---- segment tables ---- */

/* With ep, each rank of the group of lane `first` has some members of a stack, all of each; together they have all. */
static ndp_status tile_experts(const ndp_lanes *l, int first, int buffer, int k) {
    const ndp_members *m = ndp_lane_members(l, first, NDP_GROUP_EP);
    ndp_share sum = 0;
    for (int i = 0; i < m->n; i++) {
        const ndp_segment *s = &l->items[m->lanes[i]].tables[buffer].items[k];
        ndp_share members =
            ndp_range_share(ndp_dim_make(0, 3), s->stack_whole, s->stack_first, s->stack_first + s->stack);
        sum = ndp_share_add(sum, ndp_share_mul(members, ndp_segment_share(s, 0, 0, s->rows, 0, s->cols)));
    }
    return sum == 1 ? NDP_OK
                    : NDP_FAIL(NDP_EBUG, "placement: the ranks of ep have %s of %s, must have each expert once",
                               ndp_share_text(sum).s, l->items[first].tables[buffer].items[k].name);
}

/* True if the ranks of ep have some of the stack's members each, and those of tp no parts of them. */
static bool is_of_experts(const ndp_lanes *l, const ndp_segment *s) {
    return l->items[0].mesh.layout.size[NDP_EP] > 1 && ndp_segment_is_stack(s);
}

/* The ranks of tp have rectangles of the tensor that are all of it (`first`: the lane of tp 0); those that are the same
 * count once, and have the same blocks of codes, or their states would differ. Of a stack each rank has the same
 * rectangle of every member. */
static ndp_status tile_tensor(const ndp_lanes *l, int first, int buffer, int k) {
    bool codes = ndp_update_codes(&l->items[0].program->groups);
    const ndp_segment *s = NULL;
    ndp_share sum = 0;
    if (is_of_experts(l, &l->items[first].tables[buffer].items[k]))
        return tile_experts(l, first, buffer, k);
    for (int tp = 0; tp < l->size[NDP_TP]; tp++) {
        s = &l->items[first + tp].tables[buffer].items[k];
        bool known = s->rows * s->cols == 0;
        for (int other = 0; other < tp; other++) {
            const ndp_segment *like = &l->items[first + other].tables[buffer].items[k];
            bool same = ndp_segments_same(s, like, NDP_SAME_RECTANGLE);
            if (same && codes && (s->offset - like->offset) % NDP_CODE_BLOCK != 0)
                return NDP_FAIL(NDP_EBUG,
                                "placement: ranks %d and %d of tp have the same elements of %s in other blocks", other,
                                tp, s->name);
            known |= same;
        }
        sum = known ? sum : ndp_share_add(sum, ndp_segment_share(s, 0, 0, s->rows, 0, s->cols));
    }
    return sum == 1 ? NDP_OK
                    : NDP_FAIL(NDP_EBUG, "placement: the ranks of tp have %s of %s, must have each element",
                               ndp_share_text(sum).s, s->name);
}

/* A table is the same whatever rows a rank has, of the tensors of the whole model, and no two tensors overlap. */
static ndp_status check_table(const ndp_lanes *l, int lane, const ndp_segments *like, int buffer) {
    const ndp_segments *t = &l->items[lane].tables[buffer], *whole = NULL;
    const ndp_model *m = l->items[lane].program->opts.whole;
    const char *name = l->items[lane].program->opts.model->buffers[buffer].name;
    if (ndp_whole_buffer(m, name) != NDP_NONE)
        whole = &m->buffers[ndp_whole_buffer(m, name)].segments;
    bool same = t->n == like->n;
    for (int k = 0; k < t->n; k++) {
        const ndp_segment *a = &t->items[k];
        if (!whole || whole->n != t->n || !ndp_segments_same(a, &whole->items[k], NDP_SAME_TENSOR))
            return ndp_lane_refuse(l, lane, "segment %d of %s, %s, is another tensor than in the whole model", k, name,
                                   a->name);
        same = same && (is_of_experts(l, a) || (ndp_segments_same(a, &like->items[k], NDP_SAME_RECTANGLE) &&
                                                a->offset == like->items[k].offset));
        for (int i = 0; t == like && i < k; i++) {
            const ndp_segment *b = &t->items[i];
            if (a->length > 0 && b->length > 0 && a->offset < b->offset + b->length &&
                b->offset < a->offset + a->length)
                return ndp_lane_refuse(l, lane, "%s and %s have the same elements of buffer %s", a->name, b->name,
                                       name);
        }
    }
    return same ? NDP_OK : ndp_lane_refuse(l, lane, "it has another table of %s than ranks with other rows", name);
}

/* Ranks of one place in their groups of ep have the same experts. */
static ndp_status check_experts(const ndp_lanes *l, int lane, int buffer) {
    const ndp_segments *t = &l->items[lane].tables[buffer];
    int first = lane / l->stage * l->stage, like = first;
    while (ndp_lane_members(l, like, NDP_GROUP_EP)->rank != ndp_lane_members(l, lane, NDP_GROUP_EP)->rank)
        like++;
    for (int k = 0; k < t->n; k++)
        if (is_of_experts(l, &t->items[k]) && !ndp_segments_same(&t->items[k], &l->items[like].tables[buffer].items[k],
                                                                 NDP_SAME_RECTANGLE | NDP_SAME_SIZES))
            return ndp_lane_refuse(l, lane, "it has other experts of %s than %s", t->items[k].name,
                                   ndp_lane_text(l, like).s);
    return NDP_OK;
}

static ndp_status check_tables(const ndp_lanes *l) {
    for (int i = 0; i < l->n; i++)
        for (int b = 0; b < l->items[i].program->opts.model->n_buffers; b++)
            NDP_TRY(check_experts(l, i, b));
    for (int i = 0; i < l->n; i++)
        for (int b = 0; b < l->items[i].program->opts.model->n_buffers; b++)
            NDP_TRY(check_table(l, i, &l->items[i / l->stage * l->stage + i % l->size[NDP_TP]].tables[b], b));
    for (int first = 0; first < l->n; first += l->stage)
        for (int b = 0; b < l->items[first].program->opts.model->n_buffers; b++)
            for (int k = 0; k < l->items[first].tables[b].n; k++)
                NDP_TRY(tile_tensor(l, first, b, k));
    return NDP_OK;
}

/* ---- tables of pieces ---- */

enum { MOST_ROWS = NDP_MOST_SEGMENTS };

typedef struct piece_check {
    const ndp_lanes *lanes;
    int lane, buffer;
    const ndp_update_groups *groups;
    const ndp_segments *table;
    const ndp_shard *shard;
    ndp_step_buffer stretches;
} piece_check;

/* Every segment that meets the slice has one row, with the number of its group: those of an optimizer follow each
 * other, in the order of elements. Places in the states follow each other too, from those with the most states on, and
 * so do the blocks of codes in their scales. */
/* Where a piece is in its tensor: copies of an element on several ranks are rounded alike. The number of the tensor is
 * any one. */
static void say_rounding(const ndp_segment *s, int64_t at, const int64_t *row, int64_t *must) {
    must[NDP_PIECE_TENSOR] = row[NDP_PIECE_TENSOR];
    must[NDP_PIECE_AT] = at;
    must[NDP_PIECE_ROWS] = s->rows, must[NDP_PIECE_COLS] = s->cols, must[NDP_PIECE_PITCH] = s->part[0];
    must[NDP_PIECE_ROW] = s->stack_first * s->part[0] + s->first[0] - s->base[0];
    must[NDP_PIECE_COL] = s->first[1] - s->base[1];
}

static ndp_status check_pieces(const piece_check *c, int index) {
    const ndp_lanes *l = c->lanes;
    const ndp_program *p = l->items[c->lane].program;
    const ndp_update_groups *g = c->groups;
    const char *name = p->opts.model->buffers[c->buffer].name;
    int columns = ndp_piece_columns(g);
    int64_t rows[MOST_ROWS * NDP_PIECE_COLUMNS_ROUNDED], place[2] = {0}, low = c->shard->slice * index, r = 0;
    int64_t n = l->claims->pieces(l->claims->user, p, c->table, c->buffer, c->shard->shards, index, NULL);
    if (n > MOST_ROWS)
        return ndp_lane_refuse(l, c->lane, "the table of pieces of slice %d of %s has %lld rows", index, name,
                               (long long)n);
    l->claims->pieces(l->claims->user, p, c->table, c->buffer, c->shard->shards, index, rows);
    ndp_stretch t;
    for (int at = 0; at < g->n_used; at++)
        for (int k = 0; ndp_step_next_stretch(&c->stretches, &k, low, low + c->shard->slice, &t);) {
            const ndp_segment *s = &c->table->items[t.segment];
            bool codes = ndp_optimizer_codes(g->used[at]);
            if (ndp_update_opts_of(g, s)->name != g->used[at])
                continue;
            const int64_t *row = rows + r++ * columns;
            int64_t must[NDP_PIECE_COLUMNS_ROUNDED] = {t.first - low, t.end - t.first,
                                                       ndp_piece_facts((int64_t)s->copies, ndp_update_group_of(g, s)),
                                                       place[codes]};
            say_rounding(s, t.first - s->offset, columns == NDP_PIECE_COLUMNS_ROUNDED ? row : must, must);
            for (int i = 0; i < columns; i++)
                if (r > n || s->copies < 1 || row[i] != must[i])
                    return ndp_lane_refuse(
                        l, c->lane,
                        "row %lld, of %lld, of the table of pieces of slice %d of %s has number %lld in column "
                        "%d, must be that of %s, %lld",
                        (long long)r, (long long)n, index, name, r > n ? 0 : (long long)row[i], i, s->name,
                        (long long)must[i]);
            place[codes] += codes ? ndp_step_blocks(must) : must[NDP_PIECE_COUNT];
        }
    return r == n ? NDP_OK
                  : ndp_lane_refuse(l, c->lane, "the table of pieces of slice %d of %s has %lld rows for %lld tensors",
                                    index, name, (long long)n, (long long)r);
}

/* No block of codes is in two slices, nor in two groups of tensors: both start at multiples of a block. */
static ndp_status check_blocks(const piece_check *c) {
    bool starts = c->shard->slice % NDP_CODE_BLOCK == 0;
    for (int k = 0; k < c->table->n; k++)
        starts &= c->table->items[k].glued || c->table->items[k].offset % NDP_CODE_BLOCK == 0;
    return starts || !ndp_update_codes(c->groups)
               ? NDP_OK
               : ndp_lane_refuse(c->lanes, c->lane, "slices or tensors of %s do not start with a block of %d elements",
                                 c->lanes->items[c->lane].program->opts.model->buffers[c->buffer].name, NDP_CODE_BLOCK);
}

static uint64_t mix(uint64_t key, int64_t x) { return ndp_dim_make(key, (uint64_t)x); }

/* Alike tables have alike pieces. */
static uint64_t layout_of(const piece_check *c) {
    uint64_t key = mix(mix(0, c->shard->shards), c->shard->slice);
    for (int k = 0; k < c->table->n; k++) {
        const ndp_segment *s = &c->table->items[k];
        key = mix(mix(mix(key, s->offset), ndp_segment_elements(s)),
                  (int64_t)s->copies * (c->groups->n + 1) + ndp_update_group_of(c->groups, s));
    }
    return key;
}

typedef struct known_layouts {
    uint64_t *keys;
    int64_t n, capacity;
    ndp_arena arena;
} known_layouts;

/* All slices of one of the buffers with alike tables; of the others, the slice of the rank itself. */
static ndp_status check_buffer(piece_check *c, known_layouts *known) {
    uint64_t key = layout_of(c);
    NDP_TRY(ndp_step_stretches(c->groups, c->table, &known->arena, &c->stretches));
    NDP_TRY(check_blocks(c));
    for (int64_t i = 0; i < known->n; i++)
        if (known->keys[i] == key)
            return check_pieces(c, c->shard->index);
    NDP_TRY(NDP_GROW(&known->arena, known->n, &known->capacity, known->keys));
    known->keys[known->n++] = key;
    for (int i = 0; i < c->shard->shards; i++)
        NDP_TRY(check_pieces(c, i));
    return NDP_OK;
}

static ndp_status check_all_pieces(const ndp_lanes *l, known_layouts *known) {
    for (int i = 0; i < l->n; i++) {
        const ndp_program *p = l->items[i].program;
        const ndp_model *m = p->opts.model;
        for (int b = 0; m->opts.mode == NDP_MODEL_TRAIN && !l->items[i].stands_in && b < m->n_buffers; b++) {
            piece_check c = {l, i, b, &p->groups, &m->buffers[b].segments, &p->owned[b].shard, {0}};
            if (m->buffers[b].trainable)
                NDP_TRY(check_buffer(&c, known));
        }
    }
    return NDP_OK;
}

/* ---- rows and samples ---- */

static ndp_status check_rows(const ndp_lanes *l) {
    ndp_share sum = 0;
    for (int i = 0; i < l->stage; i += l->size[NDP_TP])
        sum = ndp_share_add(sum, ndp_lane_rows(l, i, NDP_EXTENT_TOKENS));
    return sum == 1 ? NDP_OK
                    : NDP_FAIL(NDP_EBUG, "placement: the ranks of cp and sp load %s of the rows of a micro-batch",
                               ndp_share_text(sum).s);
}

static ndp_status check_samples(const ndp_lanes *l) {
    const ndp_program *p = l->items[0].program;
    ndp_mesh mesh = l->items[0].mesh;
    int64_t of = NDP_NONE;
    ndp_share sum = 0;
    for (int r = 0; r < l->size[NDP_DP_REPLICATE]; r++)
        for (int s = 0; s < l->size[NDP_DP_SHARD]; s++)
            for (int m = 0; m < p->opts.step.accumulation; m++) {
                int64_t first, count, total;
                mesh.coord[NDP_DP_REPLICATE] = r, mesh.coord[NDP_DP_SHARD] = s;
                mesh.rank = ndp_mesh_rank_of(&mesh.layout, mesh.coord);
                l->claims->samples(l->claims->user, p, &mesh, m, &first, &count, &total);
                if (count < 0 || first < 0 || first + count > total || (of != NDP_NONE && total != of))
                    return NDP_FAIL(NDP_EBUG,
                                    "placement: rank %d reads samples %lld to %lld of %lld for micro-batch %d",
                                    mesh.rank, (long long)first, (long long)(first + count), (long long)total, m);
                of = total;
                sum = ndp_share_add(sum, ndp_range_share(ndp_dim_make(0, 'b'), total, first, first + count));
            }
    return sum == 1 ? NDP_OK
                    : NDP_FAIL(NDP_EBUG, "placement: all ranks together read %s of the samples of a batch",
                               ndp_share_text(sum).s);
}

/* ---- inputs ---- */

/* Where input i of micro-batch m must be; block NDP_NONE: lent by the engine's user. */
static ndp_address place_of_input(const ndp_program *p, int i, int m) {
    ndp_input_kind kind = p->opts.model->inputs->items[i].kind;
    int scalar = ndp_step_scalar_of(kind);
    if (scalar != NDP_NONE)
        return ndp_step_scalar_address(p, scalar);
    if (kind == NDP_INPUT_LENT)
        return (ndp_address){NDP_NONE, 0};
    if (ndp_input_is_table(kind))
        return (ndp_address){p->tables.block, p->input_at[i]};
    return (ndp_address){p->batch.block, (size_t)m * p->batch_stride + p->input_at[i]};
}

/* A run binds the inputs of its own micro-batch, each at a place of its own. */
static ndp_status check_inputs(const ndp_lanes *l, int lane) {
    const ndp_program *p = l->items[lane].program;
    const ndp_inputs *inputs = p->opts.model->inputs;
    int last = p->opts.step.accumulation - 1;
    for (int i = 0; i < inputs->n; i++)
        for (int m = 0; m <= last; m = m == 0 && last > 1 ? 1 : m == last ? m + 1 : last) { /* 0, 1, the last */
            ndp_address is = l->claims->input(l->claims->user, p, i, m), must = place_of_input(p, i, m);
            bool fits = !ndp_input_is_of_batch(inputs->items[i].kind) ||
                        p->input_at[i] + ndp_input_bytes(inputs, i) <= p->batch_stride;
            for (int k = 0; k < i && ndp_input_is_of_batch(inputs->items[i].kind); k++)
                fits = fits && (!ndp_input_is_of_batch(inputs->items[k].kind) ||
                                p->input_at[k] + ndp_input_bytes(inputs, k) <= p->input_at[i]);
            if (!fits || is.block != must.block || (is.block != NDP_NONE && is.offset != must.offset))
                return ndp_lane_refuse(l, lane, "a run of micro-batch %d reads input %s from where another is", m,
                                       inputs->items[i].name);
        }
    return NDP_OK;
}

static ndp_status check_all_inputs(const ndp_lanes *l) {
    for (int i = 0; i < l->n; i++)
        if (i == 0 || l->items[i].program->instrs != l->items[i - 1].program->instrs)
            NDP_TRY(check_inputs(l, i));
    return NDP_OK;
}

ndp_status ndp_claims_prove(const ndp_lanes *l) {
    known_layouts known = {0};
    NDP_TRY(check_tables(l));
    ndp_status st = check_all_pieces(l, &known);
    ndp_arena_release(&known.arena);
    NDP_TRY(st);
    NDP_TRY(check_rows(l));
    NDP_TRY(check_all_inputs(l));
    return check_samples(l);
}
