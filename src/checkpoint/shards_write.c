/* Writing the files of a plan with all ranks: rank 0 creates them, all ranks write their elements (exchange.c), rank 0
 * writes the indices. Before anything is created, the ranks check that together they hold every element exactly once.
 * Called by folder_save.c and checkpoint.c. */
#include "base/text.h"
#include "checkpoint/agree.h"
#include "checkpoint/shards.h"

#include <json-c/json.h>
#include <stdlib.h>

static ndp_status check_pieces(const ndp_shards *s, const ndp_file_piece *pieces, int n_pieces, int64_t *held) {
    for (int i = 0; i < n_pieces; i++) {
        const ndp_file_piece *p = &pieces[i];
        int64_t elements = p->tensor >= 0 && p->tensor < s->n ? ndp_tensor_elements(&s->specs[p->tensor]) : -1;
        if (elements < 0 || p->first < 0 || p->count < 0 || p->first > elements || p->count > elements - p->first)
            return NDP_FAIL(NDP_EBUG, "piece %d: elements [%lld, +%lld) of tensor %d (%s) with %lld", i,
                            (long long)p->first, (long long)p->count, p->tensor,
                            elements < 0 ? "no such tensor" : s->specs[p->tensor].name, (long long)elements);
        held[p->tensor] += p->count;
    }
    return NDP_OK;
}

/* Collective: checks that every element is held, since one that no rank holds would silently be saved as 0. */
static ndp_status check_cover(const ndp_shards *s, ndp_comm *world, const ndp_file_piece *pieces, int n_pieces) {
    int64_t *held = calloc((size_t)s->n, sizeof *held);
    ndp_status st = held ? check_pieces(s, pieces, n_pieces, held)
                         : NDP_FAIL(NDP_ENOMEM, "not enough memory to count the pieces of %d tensors", s->n);
    NDP_TRY_GOTO(ndp_agree(world, st), release);
    NDP_TRY_GOTO(ndp_reduce_now(world, held, s->n, NDP_I64, NDP_SUM), release);
    for (int i = 0; i < s->n && st == NDP_OK; i++)
        if (held[i] != ndp_tensor_elements(&s->specs[i]))
            st = NDP_FAIL(NDP_EBUG, "tensor %s has %lld elements, the ranks gave %lld to save", s->specs[i].name,
                          (long long)ndp_tensor_elements(&s->specs[i]), (long long)held[i]);
release:
    free(held);
    return st;
}

/* Creates one file with its header, which is the first chunk. */
static ndp_status create_file(ndp_shard_file *f, const char *path, bool durable) {
    ndp_safetensors_writer *w = NULL;
    size_t bytes;
    NDP_TRY(ndp_safetensors_create(path, f->specs, f->n, &w));
    ndp_status st = durable ? ndp_safetensors_sync(w) : NDP_OK;
    const char *header = ndp_safetensors_header(w, &bytes);
    f->chunks[0].hash = ndp_hash_of(header, bytes);
    ndp_safetensors_writer_destroy(w);
    return st;
}

static ndp_status create_files(ndp_shards *s, const char *folder, bool durable) {
    for (int f = 0; f < s->n_files; f++) {
        char path[NDP_PATH];
        NDP_TRY(ndp_path_join(path, folder, s->files[f].name));
        NDP_TRY(create_file(&s->files[f], path, durable));
    }
    return NDP_OK;
}

ndp_status ndp_shards_sync(const ndp_shards *s, const char *folder) {
    for (int f = 0; f < s->n_files; f++) {
        char path[NDP_PATH];
        ndp_safetensors_writer *w = NULL;
        NDP_TRY(ndp_path_join(path, folder, s->files[f].name));
        NDP_TRY(ndp_safetensors_join(path, s->files[f].specs, s->files[f].n, &w));
        ndp_status st = ndp_safetensors_sync(w);
        ndp_safetensors_writer_destroy(w);
        NDP_TRY(st);
    }
    return NDP_OK;
}

/* Writes an index, which is a single chunk, and records it. */
static ndp_status write_index_text(ndp_shards *s, const char *folder, const char *stem, const char *text) {
    const char *name = ndp_arena_format(&s->arena, "%s.safetensors.index.json", stem);
    ndp_chunk *chunk = ndp_arena_alloc(&s->arena, sizeof *chunk);
    char path[NDP_PATH];
    NDP_CHECK_MEMORY(name && chunk && text, "for the index of %s", stem);
    NDP_TRY(ndp_path_join(path, folder, name));
    *chunk = (ndp_chunk){0, (int64_t)strlen(text), ndp_hash_of(text, strlen(text))};
    s->indices[s->n_indices++] = (ndp_manifest_file){name, chunk->bytes, chunk, 1};
    return ndp_file_write_atomic(path, text, strlen(text));
}

/* Writes the index of the stem whose files start at index `first`; *next: the first file of another stem. */
static ndp_status write_index(ndp_shards *s, const char *folder, int first, int *next) {
    const char *stem = s->files[first].stem;
    int64_t total = 0;
    for (*next = first; *next < s->n_files && s->files[*next].stem == stem; ++*next)
        total += s->files[*next].data_bytes;
    if (*next - first == 1)
        return NDP_OK;
    struct json_object *o = json_object_new_object(), *metadata = json_object_new_object();
    struct json_object *map = json_object_new_object();
    json_object_object_add(metadata, "total_size", json_object_new_int64(total));
    json_object_object_add(o, "metadata", metadata);
    json_object_object_add(o, "weight_map", map);
    for (int f = first; f < *next; f++)
        for (int i = 0; i < s->files[f].n; i++)
            json_object_object_add(map, s->files[f].specs[i].name, json_object_new_string(s->files[f].name));
    const char *text = json_object_to_json_string_ext(o, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_NOSLASHESCAPE);
    ndp_status st = write_index_text(s, folder, stem, text);
    json_object_put(o);
    return st;
}

ndp_status ndp_shards_write_indices(ndp_shards *s, const char *folder) {
    for (int f = 0; f < s->n_files;)
        NDP_TRY(write_index(s, folder, f, &f));
    return NDP_OK;
}

static ndp_status create(ndp_shards *s, ndp_comm *world, const char *folder, const ndp_file_piece *pieces, int n_pieces,
                         bool durable) {
    NDP_TRY(check_cover(s, world, pieces, n_pieces));
    return ndp_agree(world, ndp_is_first(world) ? create_files(s, folder, durable) : NDP_OK);
}

ndp_status ndp_shards_create(ndp_shards *s, ndp_comm *world, const char *folder, const ndp_file_piece *pieces,
                             int n_pieces) {
    return create(s, world, folder, pieces, n_pieces, false);
}

ndp_status ndp_shards_write(ndp_shards *s, ndp_comm *world, const char *folder, const ndp_file_piece *pieces,
                            int n_pieces) {
    NDP_TRY(create(s, world, folder, pieces, n_pieces, true));
    NDP_TRY(ndp_shards_gather(s, world, folder, pieces, n_pieces));
    return ndp_agree(world, ndp_is_first(world) ? ndp_shards_write_indices(s, folder) : NDP_OK);
}
