/* Lanes: one for each coordinate of pp, cp, sp and tp at one pair of data coordinates, or a block of them. */
#include "placement/lanes.h"

#include <string.h>

/* The axes that lanes differ on, outermost first. */
static const ndp_axis lane_axes[5] = {NDP_PP, NDP_DP_SHARD, NDP_CP, NDP_SP, NDP_TP};

/* ---- programs of lanes ---- */

/* How far the program of another rank is from fitting: axes on which the ranks differ; stages must be the same. */
static int distance(const ndp_mesh *a, const ndp_mesh *b) {
    int d = 0;
    if (a->coord[NDP_PP] != b->coord[NDP_PP])
        return NDP_NONE;
    for (int axis = NDP_PP + 1; axis < NDP_AXES; axis++)
        d += a->coord[axis] != b->coord[axis];
    return d;
}

/* Takes the tables of a lane. *fits: they have the sizes of the program's, so the ranks compute in the same shapes;
 * *own: they are the same. A program that ranks share (`place`: the lane's) has the tables of one of them, which differ
 * from another rank's in the rows and columns alone. */
static ndp_status take_tables(ndp_lanes *l, ndp_lane *lane, const ndp_program *p, bool place, bool *fits, bool *own) {
    const ndp_model *m = p->opts.model;
    ndp_segments *tables;
    NDP_TRY(NDP_NEW(&l->arena, m->n_buffers, tables));
    lane->tables = tables;
    *fits = *own = true;
    for (int i = 0; i < m->n_buffers && *fits; i++) {
        const ndp_segments *is = &tables[i], *of = &m->buffers[i].segments;
        NDP_TRY(l->claims->table(l->claims->user, p, &lane->mesh, i, &l->arena, &tables[i]));
        *fits = is->n == of->n && is->elements == of->elements && is->packing == of->packing;
        for (int k = 0; k < is->n && *fits; k++) {
            *fits = ndp_segments_same(&is->items[k], &of->items[k], NDP_SAME_SIZES);
            *own = *own && ndp_segments_same(&is->items[k], &of->items[k], NDP_SAME_RECTANGLE);
            if (*fits && place && !ndp_segments_same(&is->items[k], &of->items[k], NDP_SAME_TENSOR | NDP_SAME_NUMBERS))
                return NDP_FAIL(NDP_EBUG,
                                "placement: rank %d: segment %d of its table of %s, %s, is another than the one that "
                                "its program is made for",
                                lane->mesh.rank, k, m->buffers[i].name, is->items[k].name);
        }
    }
    return NDP_OK;
}

/* The nearest program whose tables fit the lane's; those of the lane's place on pp and tp at another one of cp, sp or
 * the data axes come first. */
static ndp_status find_program(ndp_lanes *l, ndp_lane *lane, const ndp_program *const *programs, int n) {
    for (int d = 0; d < NDP_AXES; d++)
        for (int i = 0; i < n; i++) {
            bool fits, own;
            if (distance(&programs[i]->opts.step.mesh, &lane->mesh) != d)
                continue;
            NDP_TRY(take_tables(l, lane, programs[i], d == 0, &fits, &own));
            if (!fits)
                continue;
            lane->program = programs[i];
            lane->stands_in = d > 0 || !own;
            return NDP_OK;
        }
    return NDP_FAIL(NDP_EBUG, "placement: no program is given for rank %d, or one with tables of its sizes",
                    lane->mesh.rank);
}

static ndp_mesh mesh_at(const ndp_mesh *of, const int coord[NDP_AXES]) {
    ndp_mesh m = *of;
    memcpy(m.coord, coord, sizeof m.coord);
    m.rank = ndp_mesh_rank_of(&of->layout, coord);
    return m;
}

/* ---- rows ---- */

/* Where a lane's rows are among those of all: a stretch is longer than any padding to multiples of 2 cp x sp x tp. */
static void place_rows(const ndp_lanes *l, ndp_lane *lane) {
    const int *size = lane->mesh.layout.size;
    int64_t rows = lane->program->opts.whole->opts.rows,
            padding = 2 * (int64_t)size[NDP_CP] * size[NDP_SP] * size[NDP_TP];
    lane->batch = (ndp_lane_real){rows, rows + padding, l->data};
    lane->first_row = (lane->mesh.coord[NDP_DP_SHARD] - l->dp[1]) * lane->batch.stretch;
}

/* Rows before `at` that are no padding. */
static int64_t real_before(const ndp_lane_real *b, int64_t at) {
    int64_t stretch = at / b->stretch, rest = at % b->stretch;
    return stretch >= b->data ? b->data * b->real : stretch * b->real + (rest < b->real ? rest : b->real);
}

ndp_share ndp_rows_share(const ndp_lane_real *b, int64_t at, int64_t n) {
    return ndp_range_share(ndp_dim_make(0, 'r'), b->data * b->real, real_before(b, at), real_before(b, at + n));
}

/* The rows that the rank loads, by the claim. */
static ndp_status take_rows(ndp_lanes *l, ndp_lane *lane, ndp_extent extent) {
    int64_t capacity = 0, *n = &lane->n_rows[extent];
    for (int64_t i = 0; i < lane->program->opts.model->inputs->rows[extent]; i++) {
        int64_t at = l->claims->row(l->claims->user, lane->program, &lane->mesh, extent, i);
        if (at < 0 || at >= lane->batch.stretch)
            return NDP_FAIL(NDP_EBUG, "placement: rank %d: row %lld of its rows is row %lld of a micro-batch of %lld",
                            lane->mesh.rank, (long long)i, (long long)at, (long long)lane->batch.real);
        at += lane->first_row;
        ndp_row_run *last = *n > 0 ? &lane->rows[extent][*n - 1] : NULL;
        if (last && last->at + last->n == at) {
            last->n++;
            continue;
        }
        NDP_TRY(NDP_GROW(&l->arena, *n, &capacity, lane->rows[extent]));
        lane->rows[extent][(*n)++] = (ndp_row_run){i, 1, at};
    }
    return NDP_OK;
}

/* Those of a unit, and of each input of the batch. */
static ndp_status take_all_rows(ndp_lanes *l, ndp_lane *lane) {
    const ndp_inputs *inputs = lane->program->opts.model->inputs;
    NDP_TRY(take_rows(l, lane, NDP_EXTENT_TOKENS));
    for (int i = 0; i < inputs->n; i++)
        if (ndp_input_is_of_batch(inputs->items[i].kind) && lane->n_rows[inputs->items[i].extent] == 0)
            NDP_TRY(take_rows(l, lane, inputs->items[i].extent));
    return NDP_OK;
}

/* ---- groups ---- */

static bool is_in(const ndp_group *g, int rank) {
    int apart = rank - g->base;
    return apart >= 0 && apart % g->stride == 0 && apart / g->stride < g->count;
}

/* Lanes of one group share its list. */
static ndp_status find_members(ndp_lanes *l, int lane, ndp_group_kind kind, ndp_members *m) {
    ndp_group g = ndp_mesh_group(&l->items[lane].mesh, kind);
    unsigned own = 0;
    *m = (ndp_members){.ranks = g.count, .rank = g.rank};
    for (int i = 0; i < l->n; i++) {
        if (!is_in(&g, l->items[i].mesh.rank))
            continue;
        if (m->n == 0 && l->members[i][kind].lanes)
            m->lanes = l->members[i][kind].lanes;
        else if (m->n == 0)
            NDP_TRY(NDP_NEW(&l->arena, g.count < l->n ? g.count : l->n, m->lanes));
        m->me = i == lane ? m->n : m->me;
        m->lanes[m->n++] = i;
    }
    for (int k = 0; k < 2 && m->n < m->ranks; k++)
        own |= ndp_group_spans(kind, NDP_DP_REPLICATE + k) && ndp_lanes_blocks(l, k) > 1 ? 1u << k : 0;
    m->own = (ndp_own)own;
    return NDP_OK;
}

int ndp_lanes_data(const ndp_layout *layout) {
    int inside = layout->size[NDP_CP] * layout->size[NDP_SP] * layout->size[NDP_TP], ep = layout->size[NDP_EP], n = 1;
    while (n * inside % ep != 0)
        n++;
    return n;
}

/* The coordinates of lane i. */
static void coordinates(const ndp_lanes *l, int i, int coord[NDP_AXES]) {
    coord[NDP_DP_REPLICATE] = l->dp[0];
    for (int k = NDP_COUNT(lane_axes) - 1; k >= 0; k--) {
        int size = lane_axes[k] == NDP_DP_SHARD ? l->data : l->size[lane_axes[k]];
        coord[lane_axes[k]] = i % size;
        i /= size;
    }
    coord[NDP_DP_SHARD] += l->dp[1];
}

ndp_status ndp_lanes_init(const ndp_program *const *programs, int n, const int dp[2], const ndp_claims *claims,
                          ndp_lanes *out) {
    const ndp_mesh *mesh = &programs[0]->opts.step.mesh;
    int data = ndp_lanes_data(&mesh->layout);
    *out = (ndp_lanes){.dp = {dp[0], dp[1] / data * data}, .data = data, .claims = claims};
    memcpy(out->size, mesh->layout.size, sizeof out->size);
    out->stage = data * out->size[NDP_CP] * out->size[NDP_SP] * out->size[NDP_TP];
    out->n = out->size[NDP_PP] * out->stage;
    NDP_TRY(NDP_NEW(&out->arena, out->n, out->items));
    for (int i = 0; i < out->n; i++) {
        int coord[NDP_AXES];
        coordinates(out, i, coord);
        out->items[i].mesh = mesh_at(mesh, coord);
        NDP_TRY(find_program(out, &out->items[i], programs, n));
        place_rows(out, &out->items[i]);
        NDP_TRY(take_all_rows(out, &out->items[i]));
    }
    NDP_TRY(NDP_NEW(&out->arena, out->n, out->members));
    for (int i = 0; i < out->n * NDP_GROUPS; i++)
        NDP_TRY(find_members(out, i / NDP_GROUPS, (ndp_group_kind)(i % NDP_GROUPS),
                             &out->members[i / NDP_GROUPS][i % NDP_GROUPS]));
    return NDP_OK;
}

void ndp_lanes_release(ndp_lanes *l) {
    ndp_arena_release(&l->arena);
    *l = (ndp_lanes){0};
}

ndp_text ndp_lane_text(const ndp_lanes *l, int lane) {
    const ndp_mesh *m = &l->items[lane].mesh;
    const char *before = " (";
    ndp_text out = {""};
    ndp_text_add(&out, "rank %d", m->rank);
    for (int axis = 0; axis < NDP_AXES; axis++)
        if (m->layout.size[axis] > 1) {
            ndp_text_add(&out, "%s%s %d", before, ndp_axis_name((ndp_axis)axis), m->coord[axis]);
            before = ", ";
        }
    ndp_text_add(&out, "%s", before[0] == ',' ? ")" : "");
    return out;
}

ndp_status ndp_lane_refused(const ndp_lanes *l, int lane, ndp_status st) {
    return NDP_FAIL(st, "placement: %s: %s", ndp_lane_text(l, lane).s, ndp_error_message());
}

/* ---- segments and rows ---- */

int ndp_whole_buffer(const ndp_model *whole, const char *name) {
    for (int i = 0; i < whole->n_buffers; i++)
        if (strcmp(whole->buffers[i].name, name) == 0)
            return i;
    return NDP_NONE;
}

bool ndp_segments_same(const ndp_segment *a, const ndp_segment *b, unsigned what) {
    bool same = true;
    if (what & (NDP_SAME_SIZES | NDP_SAME_RECTANGLE))
        same = a->rows == b->rows && a->cols == b->cols;
    if (what & NDP_SAME_SIZES)
        same = same && a->offset == b->offset && a->stack == b->stack;
    if (what & NDP_SAME_RECTANGLE)
        same = same && a->stack_first == b->stack_first;
    if (what & NDP_SAME_NUMBERS)
        same = same && a->copies == b->copies && a->sums == b->sums;
    for (int k = 0; same && k < 2; k++)
        same = (!(what & NDP_SAME_RECTANGLE) || a->first[k] == b->first[k]) &&
               (!(what & NDP_SAME_TENSOR) ||
                (a->base[k] == b->base[k] && a->part[k] == b->part[k] && a->whole[k] == b->whole[k]));
    return same && (!(what & NDP_SAME_TENSOR) ||
                    (strcmp(a->name, b->name) == 0 && a->stack_whole == b->stack_whole && a->ndim == b->ndim &&
                     a->named_by == b->named_by && a->transposed == b->transposed && a->projection == b->projection &&
                     a->coded == b->coded && a->glued == b->glued && a->apart == b->apart));
}

ndp_share ndp_segment_share(const ndp_segment *s, ndp_dim_key tensor, int64_t row, int64_t rows, int64_t col,
                            int64_t cols) {
    row += s->first[0] - s->base[0], col += s->first[1] - s->base[1];
    return ndp_share_mul(ndp_range_share(ndp_dim_make(tensor, 1), s->part[0], row, row + rows),
                         ndp_range_share(ndp_dim_make(tensor, 2), s->part[1], col, col + cols));
}

ndp_share ndp_lane_rows(const ndp_lanes *l, int lane, ndp_extent extent) {
    const ndp_lane *of = &l->items[lane];
    ndp_share sum = 0;
    for (int64_t i = 0; i < of->n_rows[extent]; i++) {
        const ndp_row_run *r = &of->rows[extent][i];
        sum = ndp_share_add(sum, ndp_rows_share(&of->batch, r->at, r->n));
    }
    return sum;
}

/* ---- running, and meetings ---- */

ndp_status ndp_lanes_run(int first, int n, ndp_lane_fn *advance, void *user, int *stuck) {
    for (bool moved = true; moved;) {
        moved = false;
        *stuck = NDP_NONE;
        for (int lane = first; lane < first + n; lane++) {
            bool over = false;
            NDP_TRY(advance(user, lane, &moved, &over));
            *stuck = over || *stuck != NDP_NONE ? *stuck : lane;
        }
    }
    return NDP_OK;
}

ndp_status ndp_meetings_init(const ndp_lanes *l, int channels, ndp_arena *arena, ndp_meetings *out) {
    *out = (ndp_meetings){.channels = channels, .arena = arena};
    return NDP_NEW(arena, l->n * channels, out->of);
}

ndp_status ndp_meet_begin(ndp_meetings *m, int lane, int channel, void *handed, int64_t *number) {
    ndp_meeting *at = &m->of[lane * m->channels + channel];
    NDP_TRY(NDP_GROW(m->arena, at->n, &at->capacity, at->handed));
    *number = at->n;
    at->handed[at->n++] = handed;
    return NDP_OK;
}

void *ndp_meet_handed(const ndp_meetings *m, int member, int channel, int64_t number) {
    const ndp_meeting *at = &m->of[member * m->channels + channel];
    return number < at->n ? at->handed[number] : NULL;
}
