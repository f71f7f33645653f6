/* Weights to and from the slices of an engine: lists of tensors for files, loading a model folder, drawing at random.
 */
#include "job/weights.h"

#include "model/architecture.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK = 8192 }; /* elements that are moved at a time: they stay in the cache */

ndp_dtype ndp_export_type(const ndp_model_opts *o) { return o->compute == NDP_BF16 ? NDP_BF16 : o->master; }

ndp_status ndp_engine_runs(ndp_engine *e, ndp_owned_kind kind, ndp_run_visitor *visit, void *user) {
    const ndp_model *m = ndp_engine_model(e);
    for (int b = 0; b < m->n_buffers; b++) {
        const ndp_shard *s = ndp_engine_shard(e, b);
        ndp_owned_run r = {e, kind, b, {0}};
        for (int64_t at = 0;
             ndp_engine_has(e, kind, b) && ndp_segments_run(&m->buffers[b].segments, s->shards, s->index, &at, &r.run);)
            if (ndp_engine_keeps(e, kind, r.run.segment))
                NDP_TRY(visit(user, &r));
    }
    return NDP_OK;
}

static int64_t place_in_slice(const ndp_run *p, int64_t skip) { return p->slice_first + skip * p->stride; }

ndp_status ndp_run_get(const ndp_owned_run *r, int64_t skip, int64_t n, void *out, ndp_dtype type) {
    double block[BLOCK];
    ndp_dtype stored = ndp_engine_type(r->engine, r->kind, r->buffer);
    for (int64_t done = 0, now; done < n; done += now) {
        now = n - done < BLOCK ? n - done : BLOCK;
        NDP_TRY(ndp_engine_read(r->engine, r->kind, r->buffer, place_in_slice(&r->run, skip + done), now, r->run.stride,
                                block));
        ndp_convert(block, stored, (char *)out + (size_t)done * ndp_dtype_size(type), type, now);
    }
    return NDP_OK;
}

typedef struct run_filling {
    ndp_run_reader *read;
    void *user;
} run_filling;

static ndp_status fill_run(void *user, const ndp_owned_run *r) {
    const run_filling *f = user;
    double block[BLOCK], rounded[BLOCK];
    ndp_dtype type = ndp_engine_model(r->engine)->opts.master, stored = ndp_engine_type(r->engine, r->kind, r->buffer);
    for (int64_t done = 0, n; done < r->run.count; done += n) {
        n = r->run.count - done < BLOCK ? r->run.count - done : BLOCK;
        NDP_TRY(f->read(f->user, r->run.segment, r->run.tensor_first + done, n, block));
        ndp_convert(block, type, rounded, stored, n);
        NDP_TRY(
            ndp_engine_write(r->engine, r->kind, r->buffer, place_in_slice(&r->run, done), n, r->run.stride, rounded));
    }
    return NDP_OK;
}

ndp_status ndp_engine_fill(ndp_engine *e, ndp_owned_kind kind, ndp_run_reader *read, void *user) {
    return ndp_engine_runs(e, kind, fill_run, &(run_filling){read, user});
}

/* ---- lists of tensors ---- */

static ndp_status add_spec(ndp_tensor_list *list, const ndp_segment *s, const char *prefix, ndp_dtype stored) {
    NDP_TRY(ndp_array_reserve(&list->specs, &list->capacity, list->n + 1, sizeof *list->specs));
    ndp_tensor_spec *spec = &list->specs[list->n++];
    *spec = (ndp_tensor_spec){.name = ndp_arena_format(&list->arena, "%s%s", prefix, s->name),
                              .dtype = stored,
                              .ndim = s->ndim,
                              .shape = {s->whole[s->ndim == 1], s->whole[1]}};
    if (s->transposed)
        spec->shape[0] = s->whole[1], spec->shape[1] = s->whole[0];
    return spec->name ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "not enough memory for the list of tensors");
}

/* A slice of the engine as a source of pieces. */
typedef struct owned_slice {
    ndp_piece_source source;
    const ndp_engine *engine;
    ndp_owned_kind kind;
    int buffer;
} owned_slice;

static ndp_status read_slice(void *user, int64_t first, int64_t n, int64_t stride, void *out) {
    const owned_slice *s = user;
    return ndp_engine_read(s->engine, s->kind, s->buffer, first, n, stride, out);
}

static ndp_status add_source(ndp_tensor_list *list, const ndp_engine *e, ndp_owned_kind kind, int buffer,
                             const ndp_piece_source **out) {
    owned_slice *s = ndp_arena_alloc(&list->arena, sizeof *s);
    if (!s)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for the list of tensors");
    *s = (owned_slice){{read_slice, s}, e, kind, buffer};
    *out = &s->source;
    return NDP_OK;
}

static ndp_status add_piece(ndp_tensor_list *list, int tensor, const ndp_run *p, const ndp_piece_source *source,
                            ndp_dtype type) {
    NDP_TRY(ndp_array_reserve(&list->pieces, &list->piece_capacity, list->n_pieces + 1, sizeof *list->pieces));
    list->pieces[list->n_pieces++] = (ndp_file_piece){.tensor = tensor,
                                                      .first = p->tensor_first,
                                                      .count = p->count,
                                                      .dtype = type,
                                                      .stride = p->stride,
                                                      .source = source,
                                                      .at = p->slice_first};
    return NDP_OK;
}

/* The tensors of the whole model: what files hold does not depend on what this rank holds. e: NULL for weights, which
 * every optimizer keeps. */
static ndp_status add_specs(ndp_tensor_list *list, const ndp_model *whole, const ndp_engine *e, ndp_owned_kind kind,
                            const char *prefix, ndp_dtype stored) {
    for (int b = 0; b < whole->n_buffers; b++) {
        const ndp_segments *segments = &whole->buffers[b].segments;
        if (kind != NDP_OWNED_MASTER && !whole->buffers[b].trainable)
            continue;
        for (int i = 0; i < segments->n; i++) {
            const ndp_segment *s = &segments->items[i];
            if ((i == 0 || !ndp_segment_continues(s)) && (!e || ndp_engine_keeps(e, kind, s)))
                NDP_TRY(add_spec(list, s, prefix, stored));
        }
    }
    return NDP_OK;
}

/* The place of a tensor among those from `first` on. Ranks hold them in the list's order, so the search goes on where
 * the last one ended. */
static ndp_status find_spec(const ndp_tensor_list *list, int first, const char *prefix, const char *name, int *at) {
    int n = list->n - first;
    size_t skip = strlen(prefix);
    for (int k = 0; k < n; k++) {
        int i = first + (*at - first + k) % n;
        if (strcmp(list->specs[i].name + skip, name) == 0) {
            *at = i;
            return NDP_OK;
        }
    }
    return NDP_FAIL(NDP_EBUG, "a rank holds the tensor %s, which the whole model lacks", name);
}

/* This rank's elements of a buffer. */
static ndp_status add_buffer(ndp_tensor_list *list, const ndp_engine *e, ndp_owned_kind kind, int b, const char *prefix,
                             int first, int *at) {
    const ndp_segments *segments = &ndp_engine_model(e)->buffers[b].segments;
    const ndp_shard *s = ndp_engine_shard(e, b);
    const ndp_piece_source *source = NULL;
    int tensors[NDP_MOST_SEGMENTS]; /* of each segment, its place in the list; parts of one tensor share it */
    for (int i = 0; i < segments->n; i++) {
        if (!ndp_engine_keeps(e, kind, &segments->items[i]))
            continue;
        NDP_TRY(find_spec(list, first, prefix, segments->items[i].name, at));
        tensors[i] = *at;
    }
    NDP_TRY(add_source(list, e, kind, b, &source));
    ndp_run p;
    for (int64_t run = 0; ndp_segments_run(segments, s->shards, s->index, &run, &p);)
        if (!p.segment->replica && ndp_engine_keeps(e, kind, p.segment))
            NDP_TRY(add_piece(list, tensors[p.segment - segments->items], &p, source, ndp_engine_type(e, kind, b)));
    return NDP_OK;
}

ndp_status ndp_tensor_list_add(ndp_tensor_list *list, const ndp_engine *e, ndp_owned_kind kind, const char *prefix,
                               ndp_dtype stored) {
    const ndp_model *m = ndp_engine_model(e);
    int first = list->n, at = first;
    bool states = kind != NDP_OWNED_MASTER;
    NDP_TRY(add_specs(list, ndp_engine_whole(e), e, kind, prefix, stored));
    if (ndp_engine_program(e)->opts.step.mesh.coord[NDP_DP_REPLICATE] != 0)
        return NDP_OK;
    for (int b = 0; b < m->n_buffers; b++)
        if (!states || m->buffers[b].trainable)
            NDP_TRY(add_buffer(list, e, kind, b, prefix, first, &at));
    return NDP_OK;
}

ndp_status ndp_tensor_list_of(ndp_tensor_list *list, const ndp_model *whole, ndp_owned_kind kind, ndp_dtype stored) {
    return add_specs(list, whole, NULL, kind, "", stored);
}

void ndp_tensor_list_release(ndp_tensor_list *list) {
    free(list->specs);
    free(list->pieces);
    ndp_arena_release(&list->arena);
    *list = (ndp_tensor_list){0};
}

/* ---- loading and drawing ---- */

typedef struct weight_filling {
    const ndp_model *model;
    const ndp_weights *weights;
    ndp_dtype rounded;
    uint64_t seed;
} weight_filling;

/* At most BLOCK elements. */
static ndp_status read_folder(void *user, const ndp_segment *s, int64_t first, int64_t count, void *out) {
    const weight_filling *f = user;
    double rounded[BLOCK];
    NDP_TRY(ndp_weights_read(f->weights, s->name, first, count, rounded, f->rounded, true));
    ndp_convert(rounded, f->rounded, out, f->model->opts.master, count);
    return NDP_OK;
}

static ndp_status draw(void *user, const ndp_segment *s, int64_t first, int64_t count, void *out) {
    const weight_filling *f = user;
    float values[BLOCK];
    f->model->architecture->random(f->model->facts, f->seed, s, first, count, values);
    ndp_convert(values, NDP_F32, out, f->model->opts.master, count);
    return NDP_OK;
}

static bool is_ignored(const char *name, void *model) {
    const ndp_model *m = *(const ndp_model **)model;
    return m->architecture->ignores && m->architecture->ignores(m->facts, name);
}

static ndp_status check_folder(const ndp_engine *e, const ndp_weights *w) {
    ndp_tensor_list list = {0};
    const ndp_model *m = ndp_engine_model(e);
    ndp_status st = ndp_tensor_list_add(&list, e, NDP_OWNED_MASTER, "", NDP_F32);
    if (st == NDP_OK)
        st = ndp_weights_check(w, list.specs, list.n, is_ignored, &m);
    ndp_tensor_list_release(&list);
    return st;
}

ndp_status ndp_weights_load_set(ndp_engine *e, const ndp_weights *w, ndp_dtype rounded) {
    weight_filling f = {.model = ndp_engine_model(e), .weights = w, .rounded = rounded};
    NDP_TRY(check_folder(e, w));
    NDP_TRY(ndp_engine_fill(e, NDP_OWNED_MASTER, read_folder, &f));
    NDP_TRY(ndp_weights_intact(w));
    return ndp_engine_publish(e);
}

ndp_status ndp_weights_load(ndp_engine *e, const char *folder) {
    ndp_weights *w;
    NDP_TRY(ndp_weights_open(folder, &w));
    ndp_status st = ndp_weights_prefix(w, ndp_model_prefix(ndp_engine_model(e)));
    if (st == NDP_OK)
        st = ndp_weights_load_set(e, w, ndp_engine_model(e)->opts.master);
    ndp_weights_close(w);
    return st;
}

ndp_status ndp_weights_draw(ndp_engine *e, uint64_t seed) {
    NDP_TRY(ndp_engine_fill(e, NDP_OWNED_MASTER, draw, &(weight_filling){.model = ndp_engine_model(e), .seed = seed}));
    return ndp_engine_publish(e);
}
