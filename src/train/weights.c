#include "train/weights.h"

#include <stdlib.h>
#include <string.h>

ndp_status ndp_engine_runs(const ndp_engine *e, ndp_owned_kind kind, ndp_run_visitor *visit, void *user) {
    const ndp_model *m = ndp_engine_model(e);
    size_t size = ndp_dtype_size(m->opts.master);
    for (int b = 0; b < m->n_buffers; b++) {
        const ndp_shard *s = ndp_engine_shard(e, b);
        char *slice = ndp_engine_slice(e, kind, b);
        ndp_run p;
        for (int64_t at = 0; slice && ndp_segments_run(&m->buffers[b].segments, s->shards, s->index, &at, &p);)
            NDP_TRY(visit(user, &p, slice + (size_t)p.slice_first * size));
    }
    return NDP_OK;
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
    return spec->name ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "no memory for the list of tensors");
}

static ndp_status add_piece(ndp_tensor_list *list, int tensor, const ndp_run *p, const void *data, ndp_dtype type) {
    NDP_TRY(ndp_array_reserve(&list->pieces, &list->piece_capacity, list->n_pieces + 1, sizeof *list->pieces));
    list->pieces[list->n_pieces++] = (ndp_file_piece){tensor, p->tensor_first, p->count, data, type, p->stride};
    return NDP_OK;
}

ndp_status ndp_tensor_list_add(ndp_tensor_list *list, const ndp_engine *e, ndp_owned_kind kind, const char *prefix,
                               ndp_dtype stored) {
    const ndp_model *m = ndp_engine_model(e);
    const ndp_mesh *mesh = &ndp_engine_program(e)->opts.mesh;
    size_t size = ndp_dtype_size(m->opts.master);
    for (int b = 0; b < m->n_buffers; b++) {
        const ndp_segments *segments = &m->buffers[b].segments;
        const ndp_shard *s = ndp_engine_shard(e, b);
        int tensors[NDP_MOST_SEGMENTS]; /* of each segment, by place in the list: parts of one tensor have the same */
        for (int i = 0; i < segments->n; i++) {
            if (i == 0 || !ndp_segment_continues(&segments->items[i]))
                NDP_TRY(add_spec(list, &segments->items[i], prefix, stored));
            tensors[i] = list->n - 1;
        }
        if (mesh->coord[NDP_DP_REPLICATE] != 0)
            continue;
        const char *slice = ndp_engine_slice(e, kind, b);
        ndp_run p;
        for (int64_t at = 0; ndp_segments_run(segments, s->shards, s->index, &at, &p);)
            if (!p.segment->replica)
                NDP_TRY(add_piece(list, tensors[p.segment - segments->items], &p, slice + (size_t)p.slice_first * size,
                                  m->opts.master));
    }
    return NDP_OK;
}

void ndp_tensor_list_release(ndp_tensor_list *list) {
    free(list->specs);
    free(list->pieces);
    ndp_arena_release(&list->arena);
    *list = (ndp_tensor_list){0};
}

const char *ndp_state_prefix(ndp_optim_kind kind, int state) {
    return kind == NDP_OPTIM_SGD ? "optimizer.momentum." : state == 0 ? "optimizer.m." : "optimizer.v.";
}

/* ---- loading and drawing ---- */

typedef struct filling {
    const ndp_model *model;
    const ndp_weights *weights;
    uint64_t seed;
    float *values; /* of one chunk */
} filling;

enum { CHUNK = 1 << 16 };

static ndp_status read_folder(void *user, const char *name, int64_t first, int64_t count, void *out) {
    const filling *f = user;
    return ndp_weights_read(f->weights, name, first, count, out, f->model->opts.master, true);
}

ndp_status ndp_run_read(const ndp_run *p, ndp_run_reader *read, void *user, const char *name, void *data,
                        ndp_dtype type) {
    enum { BLOCK = 1024 };
    double block[BLOCK];
    if (p->stride == 1)
        return read(user, name, p->tensor_first, p->count, data);
    for (int64_t done = 0, n; done < p->count; done += n) {
        n = p->count - done < BLOCK ? p->count - done : BLOCK;
        NDP_TRY(read(user, name, p->tensor_first + done, n, block));
        ndp_convert_apart(block, type, 1, (char *)data + (size_t)(done * p->stride) * ndp_dtype_size(type), type,
                          p->stride, n);
    }
    return NDP_OK;
}

static ndp_status load_piece(void *user, const ndp_run *p, void *data) {
    const filling *f = user;
    return ndp_run_read(p, read_folder, user, p->segment->name, data, f->model->opts.master);
}

static bool ignored(const char *name, void *facts) { return ndp_facts_ignores(facts, name); }

static ndp_status check_folder(const ndp_engine *e, const ndp_weights *w) {
    ndp_tensor_list list = {0};
    ndp_facts facts = ndp_engine_model(e)->facts;
    ndp_status st = ndp_tensor_list_add(&list, e, NDP_OWNED_MASTER, "", NDP_F32);
    if (st == NDP_OK)
        st = ndp_weights_check(w, list.specs, list.n, ignored, &facts);
    ndp_tensor_list_release(&list);
    return st;
}

ndp_status ndp_weights_load(ndp_engine *e, const char *folder) {
    ndp_weights *w;
    NDP_TRY(ndp_weights_open(folder, &w));
    ndp_status st = ndp_weights_prefix(w, ndp_facts_prefix(&ndp_engine_model(e)->facts));
    if (st == NDP_OK)
        st = check_folder(e, w);
    if (st == NDP_OK)
        st = ndp_engine_runs(e, NDP_OWNED_MASTER, load_piece, &(filling){.model = ndp_engine_model(e), .weights = w});
    if (st == NDP_OK)
        st = ndp_weights_intact(w);
    ndp_weights_close(w);
    NDP_TRY(st);
    ndp_engine_publish(e);
    return NDP_OK;
}

static ndp_status draw_piece(void *user, const ndp_run *p, void *data) {
    const filling *f = user;
    for (int64_t done = 0; done < p->count; done += CHUNK) {
        int64_t n = p->count - done < CHUNK ? p->count - done : CHUNK;
        ndp_model_random(&f->model->facts, f->seed, p->segment, p->tensor_first + done, n, f->values);
        char *to = (char *)data + (size_t)(done * p->stride) * ndp_dtype_size(f->model->opts.master);
        ndp_convert_apart(f->values, NDP_F32, 1, to, f->model->opts.master, p->stride, n);
    }
    return NDP_OK;
}

ndp_status ndp_weights_draw(ndp_engine *e, uint64_t seed) {
    float *values = malloc(CHUNK * sizeof *values);
    if (!values)
        return NDP_FAIL(NDP_ENOMEM, "no memory to draw weights");
    ndp_status st = ndp_engine_runs(e, NDP_OWNED_MASTER, draw_piece,
                                    &(filling){.model = ndp_engine_model(e), .seed = seed, .values = values});
    free(values);
    NDP_TRY(st);
    ndp_engine_publish(e);
    return NDP_OK;
}
