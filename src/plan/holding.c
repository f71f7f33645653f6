/* What one rank holds, read from what its run would use: samples from the order of the data, tokens from the cut of
 * rows, units, heads and slices from its tables. Numbers are kept as ascending ranges [first, end). */
#include "plan/holding.h"

#include "data/sampler.h"
#include "model/tensors.h"

#include <stdlib.h>

#define NAME_OF(NAME, name) #name,
const char *ndp_divided_name(ndp_divided what) {
    static const char *const names[] = {NDP_DIVIDED_LIST(NAME_OF)};
    return names[what];
}

int64_t ndp_numbers_count(const ndp_numbers *s) {
    int64_t count = 0;
    for (int64_t i = 0; i < s->n; i++)
        count += s->items[i].end - s->items[i].first;
    return count;
}

/* Appends [first, end), which is not before what the list has. */
static ndp_status append(ndp_numbers *s, int64_t first, int64_t end) {
    if (first >= end)
        return NDP_OK;
    if (s->n > 0 && s->items[s->n - 1].end == first) {
        s->items[s->n - 1].end = end;
        return NDP_OK;
    }
    NDP_TRY(ndp_array_reserve(&s->items, &s->capacity, s->n + 1, sizeof *s->items));
    s->items[s->n++] = (ndp_number_run){first, end};
    return NDP_OK;
}

static ndp_status read_samples(const ndp_job *j, ndp_holding *h) {
    const ndp_batch_shape shape = {j->batch.global_batch, j->batch.micro_batch, j->batch.data_ranks};
    int rank = ndp_mesh_group(&h->mesh, NDP_GROUP_DATA).rank;
    ndp_numbers *s = &h->of[NDP_DIVIDED_SAMPLES];
    s->of = shape.global;
    for (int m = 0; m < j->batch.accumulation; m++) {
        int64_t first = ndp_sample_index(&shape, 0, m, rank, 0);
        NDP_TRY(append(s, first, first + shape.micro));
    }
    return NDP_OK;
}

static ndp_status read_tokens(const ndp_row_cut *rows, ndp_holding *h) {
    ndp_numbers *s = &h->of[NDP_DIVIDED_TOKENS];
    s->of = rows->real;
    for (int64_t i = 0; i < rows->tokens; i++) {
        int64_t row = ndp_row_cut_at(rows, NDP_EXTENT_TOKENS, i);
        if (row < rows->real) /* the others are padding */
            NDP_TRY(append(s, row, row + 1));
    }
    return NDP_OK;
}

static ndp_status read_units(const ndp_model *whole, const ndp_model *m, ndp_holding *h) {
    ndp_numbers *s = &h->of[NDP_DIVIDED_UNITS];
    s->of = whole->n_units;
    for (int i = 0; i < m->n_units; i++)
        NDP_TRY(append(s, m->units[i].number, m->units[i].number + 1));
    return NDP_OK;
}

/* The first segment with rows or columns of that kind, `part` of them (0: any number); *axis says which. */
static const ndp_segment *find_dim(const ndp_model *m, ndp_dim dim, int64_t part, int *axis) {
    for (ndp_segment_walk w = {.model = m}; ndp_segment_next(&w);)
        for (int a = 0; a < 2; a++)
            if (w.segment->dim[a] == dim && (part == 0 || w.segment->part[a] == part)) {
                *axis = a;
                return w.segment;
            }
    return NULL;
}

static ndp_status read_dim(const ndp_model *whole, const ndp_model *m, ndp_dim dim, ndp_numbers *out) {
    int axis = 0;
    const ndp_segment *s = find_dim(whole, dim, 0, &axis);
    out->of = s ? s->part[axis] / s->grain[axis] : 0;
    s = s ? find_dim(m, dim, s->part[axis], &axis) : NULL; /* layers may differ: an MLP, and experts of another size */
    if (!s)
        return NDP_OK;
    int64_t first = (s->first[axis] - s->base[axis]) / s->grain[axis];
    return append(out, first, first + (axis ? s->cols : s->rows) / s->grain[axis]);
}

/* The sequence axis cuts the heads of a rank evenly (parallel/context.c). */
static ndp_status read_attention(ndp_holding *h) {
    const ndp_numbers *heads = &h->of[NDP_DIVIDED_HEADS];
    int64_t n = ndp_numbers_count(heads) / h->mesh.layout.size[NDP_SP];
    h->of[NDP_DIVIDED_ATTENTION].of = heads->of;
    if (heads->n == 0)
        return NDP_OK;
    int64_t first = heads->items[0].first + h->mesh.coord[NDP_SP] * n;
    return append(&h->of[NDP_DIVIDED_ATTENTION], first, first + n);
}

/* Of a packed matrix a slice has bytes, which count as the elements that they are. */
static int64_t elements_of(const ndp_segments *s, const ndp_piece *p) {
    double all = (double)ndp_segment_elements(p->segment);
    return s->packing == NDP_PACKING_NONE ? p->count
                                          : (int64_t)(all * (double)p->count / (double)p->segment->length + 0.5);
}

static void read_slices(const ndp_program *p, ndp_holding *h) {
    const ndp_model *m = p->opts.model;
    for (int b = 0; b < m->n_buffers; b++) {
        const ndp_shard *shard = &p->owned[b].shard;
        ndp_piece piece;
        h->slice = shard->index, h->slices = shard->shards;
        for (int at = 0; ndp_segments_piece(&m->buffers[b].segments, shard->shards, shard->index, &at, &piece);)
            h->parameters += elements_of(&m->buffers[b].segments, &piece);
    }
}

static ndp_status read_all(const ndp_job *j, const ndp_model *whole, const ndp_program *p, ndp_holding *h) {
    static const struct {
        ndp_dim dim;
        ndp_divided what;
    } dims[] = {{NDP_DIM_HEADS, NDP_DIVIDED_HEADS},
                {NDP_DIM_KV_HEADS, NDP_DIVIDED_KV_HEADS},
                {NDP_DIM_FFN, NDP_DIVIDED_FFN},
                {NDP_DIM_VOCAB, NDP_DIVIDED_VOCABULARY}};
    const ndp_step_opts *step = &p->opts.step;
    h->mesh = step->mesh;
    ndp_row_cut rows = ndp_cut_rows(j->model.rows, &h->mesh, &step->parallel);
    NDP_TRY(read_samples(j, h));
    NDP_TRY(read_tokens(&rows, h));
    NDP_TRY(read_units(whole, p->opts.model, h));
    for (int i = 0; i < NDP_COUNT(dims); i++)
        NDP_TRY(read_dim(whole, p->opts.model, dims[i].dim, &h->of[dims[i].what]));
    NDP_TRY(read_attention(h));
    read_slices(p, h);
    return NDP_OK;
}

ndp_status ndp_holding_read(const ndp_dry_run *d, const ndp_model *whole, int rank, ndp_holding *out) {
    ndp_engine *e;
    ndp_holding h = {0};
    NDP_TRY(ndp_plan_engine(d, whole, rank, &e));
    ndp_status st = read_all(d->job, whole, ndp_engine_program(e), &h);
    ndp_engine_destroy(e);
    if (st == NDP_OK)
        *out = h;
    else
        ndp_holding_release(&h);
    return st;
}

void ndp_holding_release(ndp_holding *h) {
    for (int i = 0; i < NDP_DIVIDED; i++)
        free(h->of[i].items);
}
