#include "checkpoint/shards.h"

#include "base/fault.h"
#include "base/text.h"
#include "checkpoint/agree.h"

#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- the cut ---- */

/* Which of the stems a tensor belongs to. */
static int stem_of(const char *name, const char *const *stems, int n_stems) {
    for (int s = 1; s < n_stems; s++) {
        size_t length = strlen(stems[s]);
        if (strncmp(name, stems[s], length) == 0 && name[length] == '.')
            return s;
    }
    return 0;
}

/* Assigns the tensors of one stem to files, first come first served, and names the files. */
static void cut_stem(ndp_shards *s, int stem, const char *const *stems, int n_stems, int64_t max_bytes) {
    int first = s->n_files;
    for (int i = 0; i < s->n; i++) {
        if (stem_of(s->specs[i].name, stems, n_stems) != stem)
            continue;
        int64_t bytes = ndp_tensor_elements(&s->specs[i]) * (int64_t)ndp_dtype_size(s->specs[i].dtype);
        bool opens = s->n_files == first || bytes > max_bytes - s->files[s->n_files - 1].data_bytes;
        s->n_files += opens;
        ndp_shard_file *f = &s->files[s->n_files - 1];
        f->stem = stems[stem];
        s->file_of[i] = s->n_files - 1;
        s->place[i] = f->n++;
        f->data_bytes += bytes;
    }
    int count = s->n_files - first;
    for (int i = 0; i < count; i++) {
        char *name = s->files[first + i].name;
        if (count == 1)
            snprintf(name, sizeof s->files->name, "%s.safetensors", stems[stem]);
        else
            snprintf(name, sizeof s->files->name, "%s-%05d-of-%05d.safetensors", stems[stem], i + 1, count);
    }
}

/* Gives every file its own list. */
static ndp_status fill_files(ndp_shards *s) {
    for (int f = 0; f < s->n_files; f++) {
        s->files[f].specs = ndp_arena_alloc(&s->arena, (size_t)s->files[f].n * sizeof *s->specs);
        if (!s->files[f].specs)
            return NDP_FAIL(NDP_ENOMEM, "not enough memory to plan %d files", s->n_files);
    }
    for (int i = 0; i < s->n; i++)
        s->files[s->file_of[i]].specs[s->place[i]] = s->specs[i];
    return NDP_OK;
}

ndp_status ndp_shards_plan(ndp_shards *s, const ndp_tensor_spec *specs, int n, const char *const *stems, int n_stems,
                           int64_t max_bytes) {
    NDP_CHECK(n > 0 && max_bytes > 0, "%d tensors in files of at most %lld bytes: nothing to save", n,
              (long long)max_bytes);
    int64_t whole; /* as one file: all names, types and shapes are good */
    NDP_TRY(ndp_safetensors_size(specs, n, &whole));
    s->specs = specs;
    s->n = n;
    s->files = ndp_arena_alloc(&s->arena, (size_t)n * sizeof *s->files);
    s->file_of = ndp_arena_alloc(&s->arena, (size_t)n * sizeof *s->file_of);
    s->place = ndp_arena_alloc(&s->arena, (size_t)n * sizeof *s->place);
    if (!s->files || !s->file_of || !s->place)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory to plan files for %d tensors", n);
    for (int stem = 0; stem < n_stems; stem++)
        cut_stem(s, stem, stems, n_stems, max_bytes);
    return fill_files(s);
}

void ndp_shards_release(ndp_shards *s) {
    ndp_arena_release(&s->arena);
    *s = (ndp_shards){0};
}

/* ---- the calls that need care ---- */

ndp_status ndp_durable_rename(const char *from, const char *to) {
    if (ndp_fault(NDP_FAULT_RENAME) || rename(from, to))
        return NDP_FAIL(NDP_EIO, "cannot rename '%s' to '%s': %s", from, to, strerror(errno));
    return NDP_OK;
}

ndp_status ndp_durable_folder(const char *path) {
    if (ndp_fault(NDP_FAULT_SYNC))
        return NDP_FAIL(NDP_EIO, "cannot make the folder '%s' durable: %s", path, strerror(errno));
    return ndp_folder_sync(path);
}

ndp_status ndp_fresh_folder(const char *path) {
    if (ndp_fault(NDP_FAULT_WRITE))
        return NDP_FAIL(NDP_EIO, "cannot create the folder '%s': %s", path, strerror(errno));
    NDP_TRY(ndp_folder_remove(path));
    return ndp_folder_create(path);
}

void ndp_remove_quietly(const char *folder, ndp_status st) {
    char *message = strdup(ndp_error_message());
    if (ndp_folder_remove(folder) != NDP_OK && message)
        ndp_error_set(st, message);
    free(message);
}

/* ---- writing together ---- */

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

/* Collective: an element that no rank holds would be saved as 0, and nobody would see it. */
static ndp_status check_cover(const ndp_shards *s, ndp_comm *world, const ndp_file_piece *pieces, int n_pieces) {
    int64_t *held = calloc((size_t)s->n, sizeof *held);
    ndp_status st = held ? check_pieces(s, pieces, n_pieces, held)
                         : NDP_FAIL(NDP_ENOMEM, "not enough memory to count the pieces of %d tensors", s->n);
    NDP_TRY_GOTO(ndp_agree(world, st), release);
    if (world) {
        ndp_work w;
        NDP_TRY_GOTO(ndp_all_reduce_begin(world, held, s->n, NDP_I64, NDP_SUM, &w), release);
        NDP_TRY_GOTO(ndp_wait(&w), release);
    }
    for (int i = 0; i < s->n && st == NDP_OK; i++)
        if (held[i] != ndp_tensor_elements(&s->specs[i]))
            st = NDP_FAIL(NDP_EBUG, "tensor %s has %lld elements, the ranks gave %lld to save", s->specs[i].name,
                          (long long)ndp_tensor_elements(&s->specs[i]), (long long)held[i]);
release:
    free(held);
    return st;
}

static ndp_status create_files(const ndp_shards *s, const char *folder) {
    for (int f = 0; f < s->n_files; f++) {
        char *path = ndp_format("%s/%s", folder, s->files[f].name);
        if (!path)
            return NDP_FAIL(NDP_ENOMEM, "not enough memory to write into '%s'", folder);
        ndp_safetensors_writer *w = NULL;
        ndp_status st = ndp_safetensors_create(path, s->files[f].specs, s->files[f].n, &w);
        if (st == NDP_OK)
            st = ndp_safetensors_sync(w);
        ndp_safetensors_writer_destroy(w);
        free(path);
        NDP_TRY(st);
    }
    return NDP_OK;
}

/* Elements that are apart in memory go over the stack. */
static ndp_status write_piece(ndp_safetensors_writer *w, int tensor, const ndp_file_piece *p) {
    enum { BLOCK = 1024 };
    double block[BLOCK];
    if (p->stride <= 1)
        return ndp_safetensors_write(w, tensor, p->first, p->count, p->data, p->dtype);
    for (int64_t done = 0, n; done < p->count; done += n) {
        n = p->count - done < BLOCK ? p->count - done : BLOCK;
        const char *from = (const char *)p->data + (size_t)(done * p->stride) * ndp_dtype_size(p->dtype);
        ndp_convert_apart(from, p->dtype, p->stride, block, p->dtype, 1, n);
        NDP_TRY(ndp_safetensors_write(w, tensor, p->first + done, n, block, p->dtype));
    }
    return NDP_OK;
}

/* This rank's pieces of one file. */
static ndp_status write_pieces(const ndp_shards *s, int file, const char *path, const ndp_file_piece *pieces,
                               int n_pieces) {
    ndp_safetensors_writer *w = NULL;
    ndp_status st = NDP_OK;
    for (int i = 0; i < n_pieces; i++) {
        const ndp_file_piece *p = &pieces[i];
        if (s->file_of[p->tensor] != file || p->count == 0)
            continue;
        if (!w)
            NDP_TRY_GOTO(ndp_safetensors_join(path, s->files[file].specs, s->files[file].n, &w), destroy);
        NDP_TRY_GOTO(write_piece(w, s->place[p->tensor], p), destroy);
    }
    if (w)
        NDP_TRY_GOTO(ndp_safetensors_sync(w), destroy);
destroy:
    ndp_safetensors_writer_destroy(w);
    return st;
}

static ndp_status write_own(const ndp_shards *s, const char *folder, const ndp_file_piece *pieces, int n_pieces) {
    for (int f = 0; f < s->n_files; f++) {
        char *path = ndp_format("%s/%s", folder, s->files[f].name);
        ndp_status st = path ? write_pieces(s, f, path, pieces, n_pieces)
                             : NDP_FAIL(NDP_ENOMEM, "not enough memory to write into '%s'", folder);
        free(path);
        NDP_TRY(st);
    }
    return NDP_OK;
}

/* The index of the stem whose files begin at number `first`; `*next` is the first file of another stem. */
static ndp_status write_index(const ndp_shards *s, const char *folder, int first, int *next) {
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
    char *path = ndp_format("%s/%s.safetensors.index.json", folder, stem);
    ndp_status st = text && path ? ndp_file_write_atomic(path, text, strlen(text))
                                 : NDP_FAIL(NDP_ENOMEM, "not enough memory for the index of %s", stem);
    free(path);
    json_object_put(o);
    return st;
}

static ndp_status write_indices(const ndp_shards *s, const char *folder) {
    for (int f = 0; f < s->n_files;)
        NDP_TRY(write_index(s, folder, f, &f));
    return NDP_OK;
}

ndp_status ndp_shards_write(const ndp_shards *s, ndp_comm *world, const char *folder, const ndp_file_piece *pieces,
                            int n_pieces) {
    NDP_TRY(check_cover(s, world, pieces, n_pieces));
    NDP_TRY(ndp_agree(world, ndp_is_first(world) ? create_files(s, folder) : NDP_OK));
    NDP_TRY(ndp_agree(world, write_own(s, folder, pieces, n_pieces)));
    return ndp_agree(world, ndp_is_first(world) ? write_indices(s, folder) : NDP_OK);
}
