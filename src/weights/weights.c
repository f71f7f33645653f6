/* Weights to and from the slices of an engine: runs of elements, and lists of tensors for files. */
#include "weights/weights.h"

#include "model/tensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 8192 }; /* elements that are moved at a time: they stay in the cache */

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

static bool is_part(const ndp_buffer *b, const ndp_segment *s, ndp_tensor_part part) {
    return part == NDP_TENSORS_FOLDER ? ndp_factor_of(s->name) == NDP_NO_FACTOR && !s->drawn
                                      : part == NDP_TENSORS_ALL || !b->base;
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

ndp_status ndp_run_put(const ndp_owned_run *r, int64_t skip, int64_t n, const void *in, ndp_dtype type) {
    double block[BLOCK];
    ndp_dtype stored = ndp_engine_type(r->engine, r->kind, r->buffer);
    for (int64_t done = 0, now; done < n; done += now) {
        now = n - done < BLOCK ? n - done : BLOCK;
        ndp_convert((const char *)in + (size_t)done * ndp_dtype_size(type), type, block, stored, now);
        NDP_TRY(ndp_engine_write(r->engine, r->kind, r->buffer, place_in_slice(&r->run, skip + done), now,
                                 r->run.stride, block));
    }
    return NDP_OK;
}

typedef struct run_filling {
    ndp_tensor_part part;
    ndp_run_reader *read;
    void *user;
} run_filling;

static ndp_status fill_run(void *user, const ndp_owned_run *r) {
    const run_filling *f = user;
    double block[BLOCK], rounded[BLOCK];
    char name[NDP_SEGMENT_NAME];
    const ndp_segment s = ndp_segment_of_tensor(r->run.segment, r->run.member, name);
    const ndp_model *m = ndp_engine_model(r->engine);
    ndp_dtype stored = ndp_engine_type(r->engine, r->kind, r->buffer);
    ndp_dtype type = stored == NDP_U8 ? stored : m->opts.master;
    if (!is_part(&m->buffers[r->buffer], r->run.segment, f->part))
        return NDP_OK;
    for (int64_t done = 0, n; done < r->run.count; done += n) {
        n = r->run.count - done < BLOCK ? r->run.count - done : BLOCK;
        NDP_TRY(f->read(f->user, &s, r->run.tensor_first + done, n, block));
        ndp_convert(block, type, rounded, stored, n);
        NDP_TRY(
            ndp_engine_write(r->engine, r->kind, r->buffer, place_in_slice(&r->run, done), n, r->run.stride, rounded));
    }
    return NDP_OK;
}

ndp_status ndp_engine_fill(ndp_engine *e, ndp_owned_kind kind, ndp_tensor_part part, ndp_run_reader *read, void *user) {
    return ndp_engine_runs(e, kind, fill_run, &(run_filling){part, read, user});
}

/* ---- lists of tensors ---- */

static ndp_status no_memory(void) { return NDP_FAIL(NDP_ENOMEM, "not enough memory for the list of tensors"); }

/* The tensor of files that a segment is a part of. */
static ndp_status add_spec(ndp_tensor_list *list, const ndp_segment *s, const char *name, const char *prefix,
                           ndp_dtype stored) {
    NDP_TRY(ndp_array_reserve(&list->specs, &list->capacity, list->n + 1, sizeof *list->specs));
    ndp_tensor_spec *spec = &list->specs[list->n++];
    *spec = (ndp_tensor_spec){.name = ndp_arena_format(&list->arena, "%s%s", prefix, name),
                              .dtype = s->no_grad ? ndp_wide(stored) : stored};
    int64_t below = s->form == NDP_STACK_BELOW ? s->stack_whole : s->form == NDP_STACK_INNER ? s->stack_grain : 1;
    int64_t beside = s->form == NDP_STACK_INNER ? s->stack_whole / s->stack_grain : 1;
    if (ndp_segment_is_stack(s) && ndp_segment_tensors(s) == 1 && s->form == NDP_STACK_APART)
        spec->shape[spec->ndim++] = s->stack_whole;
    if (s->ndim == 2)
        spec->shape[spec->ndim++] = below * s->whole[s->transposed];
    if (s->by_depth)
        spec->shape[spec->ndim++] = 1;
    spec->shape[spec->ndim++] = beside * s->whole[!s->transposed];
    return spec->name ? NDP_OK : no_memory();
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
        return no_memory();
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
 * every optimizer keeps; an engine's files have no packed ones. */
static ndp_status add_specs(ndp_tensor_list *list, const ndp_model *whole, const ndp_engine *e, ndp_owned_kind kind,
                            ndp_tensor_part part, ndp_dtype stored) {
    for (ndp_tensor_walk w = {.segments.model = whole}; ndp_tensor_next(&w);) {
        const ndp_buffer *b = &whole->buffers[w.tensor.buffer];
        const ndp_segment *s = w.tensor.segment;
        if ((kind == NDP_OWNED_MASTER || b->trainable) && !(e && ndp_buffer_is_packed(b)) &&
            (!e || ndp_engine_keeps(e, kind, s)) && is_part(b, s, part))
            NDP_TRY(add_spec(list, s, w.tensor.name, e ? ndp_engine_prefix(e, kind, s) : "", stored));
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
        if (strncmp(list->specs[i].name, prefix, skip) == 0 && strcmp(list->specs[i].name + skip, name) == 0) {
            *at = i;
            return NDP_OK;
        }
    }
    return NDP_FAIL(NDP_EBUG, "a rank holds the tensor %s, which the whole model lacks", name);
}

/* This rank's elements of a buffer. */
static ndp_status add_buffer(ndp_tensor_list *list, const ndp_engine *e, ndp_owned_kind kind, ndp_tensor_part part,
                             int b, int first, int *at) {
    const ndp_buffer *buffer = &ndp_engine_model(e)->buffers[b];
    const ndp_segments *segments = &buffer->segments;
    const ndp_shard *s = ndp_engine_shard(e, b);
    const ndp_piece_source *source = NULL;
    /* Of each segment, its place in the list, which parts of one tensor share; of a pattern that of its first member.
     */
    int tensors[NDP_MOST_SEGMENTS];
    char name[NDP_SEGMENT_NAME];
    for (int i = 0; i < segments->n; i++) {
        if (!ndp_engine_keeps(e, kind, &segments->items[i]) || !is_part(buffer, &segments->items[i], part))
            continue;
        NDP_TRY(find_spec(list, first, ndp_engine_prefix(e, kind, &segments->items[i]),
                          ndp_segment_tensor_name(&segments->items[i], 0, name), at));
        tensors[i] = *at;
    }
    NDP_TRY(add_source(list, e, kind, b, &source));
    ndp_run p;
    for (int64_t run = 0; ndp_segments_run(segments, s->shards, s->index, &run, &p);)
        if (!p.segment->replica && ndp_engine_keeps(e, kind, p.segment) && is_part(buffer, p.segment, part)) {
            int tensor = tensors[p.segment - segments->items];
            tensor += ndp_segment_tensors(p.segment) > 1 ? (int)p.member : 0;
            NDP_TRY(add_piece(list, tensor, &p, source, ndp_engine_type(e, kind, b)));
        }
    return NDP_OK;
}

ndp_status ndp_tensor_list_add(ndp_tensor_list *list, const ndp_engine *e, ndp_owned_kind kind, ndp_tensor_part part,
                               ndp_dtype stored) {
    const ndp_model *m = ndp_engine_model(e);
    int first = list->n, at = first;
    bool states = kind != NDP_OWNED_MASTER;
    NDP_TRY(add_specs(list, ndp_engine_whole(e), e, kind, part, stored));
    if (ndp_engine_program(e)->opts.step.mesh.coord[NDP_DP_REPLICATE] != 0)
        return NDP_OK;
    for (int b = 0; b < m->n_buffers; b++)
        if ((!states || m->buffers[b].trainable) && !ndp_buffer_is_packed(&m->buffers[b]))
            NDP_TRY(add_buffer(list, e, kind, part, b, first, &at));
    return NDP_OK;
}

ndp_status ndp_tensor_list_of(ndp_tensor_list *list, const ndp_model *whole, ndp_owned_kind kind, ndp_tensor_part part,
                              ndp_dtype stored) {
    return add_specs(list, whole, NULL, kind, part, stored);
}

static bool is_ignored(const char *name, void *model) {
    const ndp_model *m = model;
    return m->architecture->ignores && m->architecture->ignores(m->facts, name);
}

ndp_status ndp_weights_fit(const ndp_weights *w, const ndp_model *whole, ndp_tensor_part part) {
    ndp_tensor_list list = {0};
    ndp_status st = ndp_tensor_list_of(&list, whole, NDP_OWNED_MASTER, part, NDP_F32);
    if (st == NDP_OK)
        st = ndp_weights_check(w, list.specs, list.n, is_ignored, (void *)whole);
    ndp_tensor_list_release(&list);
    return st;
}

/* "layers.3.mlp.experts.gate_up_proj" of "layers.3.mlp.experts.%d.{gate_proj,up_proj}.weight". */
static void stack_name(const ndp_segment *s, char out[NDP_SEGMENT_NAME]) {
    const char *number = strstr(s->name, "%d."), *word = number + 3, *end = strrchr(word, '.');
    bool pair = *word == '{';
    snprintf(out, NDP_SEGMENT_NAME, "%.*s%.*s", (int)(number - s->name), s->name, pair ? 12 : (int)(end - word),
             pair ? "gate_up_proj" : word);
}

/* Exports copy these as they are. */
static bool is_carried(const char *name, void *whole) {
    const ndp_model *m = whole;
    return m->architecture->carries && m->architecture->carries(m->facts, name);
}

ndp_status ndp_weights_rename_for(ndp_weights *w, const ndp_model *whole) {
    ndp_model_spec s;
    ndp_model_describe(whole, &s);
    return ndp_weights_rename(w, &(ndp_naming){s.prefix, s.text, s.alias});
}

ndp_status ndp_weights_name(ndp_weights *w, const ndp_model *whole) {
    char stack[NDP_SEGMENT_NAME];
    NDP_TRY(ndp_weights_rename_for(w, whole));
    NDP_TRY(ndp_weights_widen(w, is_carried, (void *)whole));
    for (ndp_segment_walk s = {.model = whole}; ndp_segment_next(&s);) {
        const ndp_segment *x = s.segment;
        const int64_t shape[] = {x->stack, x->whole[1], x->whole[0]};
        if (ndp_segment_tensors(x) > 1) {
            stack_name(x, stack);
            NDP_TRY(ndp_weights_unstack(w, stack, x));
        } else if (ndp_segment_is_stack(x) && x->transposed) {
            NDP_TRY(ndp_weights_dequantise(w, x->name, shape));
        }
    }
    return NDP_OK;
}

ndp_status ndp_tensor_list_carry(ndp_tensor_list *list, const ndp_weights *w, const ndp_model *whole, bool writes) {
    const ndp_architecture_table *a = whole->architecture;
    for (int i = 0; i < list->n; i++)
        if (!(list->specs[i].name = ndp_weights_file_name(w, &list->arena, list->specs[i].name)))
            return no_memory();
    for (int i = 0; a->carries && i < ndp_weights_count(w); i++) {
        const ndp_tensor_entry *e = ndp_weights_at(w, i);
        if (!a->carries(whole->facts, e->spec.name))
            continue;
        NDP_TRY(ndp_array_reserve(&list->specs, &list->capacity, list->n + 1, sizeof *list->specs));
        list->specs[list->n++] = e->spec;
        if (writes)
            NDP_TRY(ndp_tensor_list_stored(list, list->n - 1, w, e, false));
    }
    return NDP_OK;
}

ndp_status ndp_checkpoint_bytes(const ndp_engine *e, int64_t *bytes) {
    const ndp_model_opts *o = &ndp_engine_model(e)->opts;
    ndp_tensor_list list = {0};
    ndp_status st = NDP_OK;
    for (int kind = NDP_OWNED_MASTER; st == NDP_OK && kind < NDP_OWNED_SCALES0; kind++)
        if (kind != NDP_OWNED_GRAD)
            st = add_specs(&list, ndp_engine_whole(e), e, (ndp_owned_kind)kind, NDP_TENSORS_RUN,
                           ndp_checkpoint_type(o, (ndp_owned_kind)kind));
    *bytes = 0;
    for (int i = 0; i < list.n; i++) {
        int64_t n = ndp_tensor_elements(&list.specs[i]);
        bool codes = list.specs[i].dtype == NDP_U8; /* with a scale for each block of them */
        *bytes += n * (int64_t)ndp_dtype_size(list.specs[i].dtype) +
                  (codes ? (n + NDP_CODE_BLOCK - 1) / NDP_CODE_BLOCK * (int64_t)ndp_dtype_size(o->master) : 0);
    }
    ndp_tensor_list_release(&list);
    return st;
}

static int64_t own_bytes(const ndp_engine *e, ndp_owned_kind kind, int buffer) {
    const ndp_buffer *b = &ndp_engine_model(e)->buffers[buffer];
    const ndp_shard *s = ndp_engine_shard(e, buffer);
    const ndp_model_opts *o = &ndp_engine_model(e)->opts;
    const ndp_dtype type = ndp_checkpoint_type(o, kind);
    int64_t bytes = 0;
    ndp_run p;
    for (int64_t run = 0; ndp_segments_run(&b->segments, s->shards, s->index, &run, &p);) {
        if (p.segment->replica || !ndp_engine_keeps(e, kind, p.segment) || !is_part(b, p.segment, NDP_TENSORS_RUN))
            continue;
        int64_t scales = (p.count + NDP_CODE_BLOCK - 1) / NDP_CODE_BLOCK;
        bytes += kind < NDP_OWNED_CODES0 ? p.count * (int64_t)ndp_dtype_size(p.segment->no_grad ? ndp_wide(type) : type)
                                         : p.count + scales * (int64_t)ndp_dtype_size(o->master);
    }
    return bytes;
}

int64_t ndp_checkpoint_own_bytes(const ndp_engine *e) {
    const ndp_model *m = ndp_engine_model(e);
    int64_t bytes = 0;
    for (int b = 0; b < m->n_buffers; b++) {
        if (ndp_buffer_is_packed(&m->buffers[b]))
            continue;
        bytes += own_bytes(e, NDP_OWNED_MASTER, b);
        for (int kind = NDP_OWNED_STATE0; m->buffers[b].trainable && kind < NDP_OWNED_SCALES0; kind++)
            bytes += own_bytes(e, (ndp_owned_kind)kind, b);
    }
    return bytes;
}

ndp_status ndp_tensor_list_wrap(ndp_tensor_list *list) {
    for (int i = 0; i < list->n; i++) {
        ndp_tensor_spec *s = &list->specs[i];
        if (ndp_adapter_inner(s->name))
            continue;
        s->name = ndp_arena_format(&list->arena, "%s%s", NDP_ADAPTER_PREFIX, s->name);
        if (!s->name)
            return no_memory();
    }
    return NDP_OK;
}

ndp_status ndp_tensor_list_vector(ndp_tensor_list *list, const char *prefix, const char *name, int64_t n,
                                  ndp_dtype stored) {
    const ndp_segment s = {.name = name, .ndim = 1, .whole = {1, n}};
    return add_spec(list, &s, name, prefix, stored);
}

ndp_status ndp_tensor_list_part(ndp_tensor_list *list, const ndp_engine *e, ndp_owned_kind kind, int buffer, int after,
                                const char *prefix, const char *name, int64_t first, int64_t at, int64_t count) {
    const ndp_run part = {.tensor_first = first, .slice_first = at, .count = count, .stride = 1};
    const ndp_piece_source *source = NULL;
    int tensor = after;
    NDP_TRY(find_spec(list, after, prefix, name, &tensor));
    NDP_TRY(add_source(list, e, kind, buffer, &source));
    return add_piece(list, tensor, &part, source, ndp_engine_type(e, kind, buffer));
}

/* A tensor of a set as the source of a piece. */
typedef struct stored_tensor {
    ndp_piece_source source;
    const ndp_weights *weights;
    const ndp_tensor_entry *entry;
    bool finite;
} stored_tensor;

/* Forgets what it has read, which would otherwise count as memory of the process until the end. */
static ndp_status read_stored(void *user, int64_t first, int64_t n, int64_t stride, void *out) {
    const stored_tensor *t = user;
    const ndp_tensor_spec *s = &t->entry->spec;
    if (stride != 1)
        return NDP_FAIL(NDP_EBUG, "a tensor of a file is read with a stride of %lld", (long long)stride);
    NDP_TRY(ndp_weights_read(t->weights, s->name, first, n, out, s->dtype, t->finite));
    ndp_weights_forget(t->weights, s->name, first, n);
    return NDP_OK;
}

ndp_status ndp_tensor_list_stored(ndp_tensor_list *list, int tensor, const ndp_weights *w, const ndp_tensor_entry *e,
                                  bool finite) {
    const ndp_run all = {.count = e->elements, .stride = 1};
    stored_tensor *t = ndp_arena_alloc(&list->arena, sizeof *t);
    if (!t)
        return no_memory();
    *t = (stored_tensor){{read_stored, t}, w, e, finite};
    return add_piece(list, tensor, &all, &t->source, e->spec.dtype);
}

ndp_status ndp_tensor_list_repeat(ndp_tensor_list *list, const char *name, const char *again) {
    int of = 0, n = list->n_pieces;
    while (of < list->n && strcmp(list->specs[of].name, name) != 0)
        of++;
    if (of == list->n)
        return NDP_FAIL(NDP_EBUG, "there is no tensor %s to repeat as %s", name, again);
    NDP_TRY(ndp_array_reserve(&list->specs, &list->capacity, list->n + 1, sizeof *list->specs));
    NDP_TRY(ndp_array_reserve(&list->pieces, &list->piece_capacity, 2 * (int64_t)n, sizeof *list->pieces));
    list->specs[list->n] = list->specs[of];
    list->specs[list->n].name = ndp_arena_strdup(&list->arena, again);
    if (!list->specs[list->n].name)
        return no_memory();
    for (int i = 0; i < n; i++)
        if (list->pieces[i].tensor == of) {
            list->pieces[list->n_pieces] = list->pieces[i];
            list->pieces[list->n_pieces++].tensor = list->n;
        }
    list->n++;
    return NDP_OK;
}

void ndp_tensor_list_release(ndp_tensor_list *list) {
    free(list->specs);
    free(list->pieces);
    ndp_arena_release(&list->arena);
    *list = (ndp_tensor_list){0};
}
