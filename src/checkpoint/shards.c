/* Dividing a list of tensors into files and chunks. The division is a function of the list alone, so all ranks compute
 * the same one without communicating. Called by folder_save.c (exports) and checkpoint.c; also has the system calls
 * that both need. */
#include "checkpoint/shards.h"

#include "base/fault.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

/* ---- the cut ---- */

/* The stem that a tensor belongs to. */
static int stem_of(const char *name, const char *const *stems, int n_stems) {
    for (int s = 1; s < n_stems; s++) {
        size_t length = strlen(stems[s]);
        if (strncmp(name, stems[s], length) == 0 && name[length] == '.')
            return s;
    }
    return 0;
}

/* Assigns the tensors of one stem to files, in order, and names the files. */
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

/* Gives every file its own list of tensors. */
static ndp_status fill_files(ndp_shards *s) {
    for (int f = 0; f < s->n_files; f++) {
        s->files[f].specs = ndp_arena_alloc(&s->arena, (size_t)s->files[f].n * sizeof *s->specs);
        NDP_CHECK_MEMORY(s->files[f].specs, "to plan %d files", s->n_files);
    }
    for (int i = 0; i < s->n; i++)
        s->files[s->file_of[i]].specs[s->place[i]] = s->specs[i];
    return NDP_OK;
}

/* ---- the chunks ---- */

static int64_t element_bytes(const ndp_tensor_spec *t) { return (int64_t)ndp_dtype_size(t->dtype); }

static int64_t parts_of(const ndp_tensor_spec *t) {
    int64_t bytes = ndp_tensor_elements(t) * element_bytes(t);
    return (bytes + NDP_CHUNK_BYTES - 1) / NDP_CHUNK_BYTES;
}

/* The chunks of one tensor, which starts at `offset` of its file. */
static void cut_tensor(ndp_shards *s, int tensor, int64_t offset) {
    const ndp_tensor_spec *t = &s->specs[tensor];
    ndp_shard_file *f = &s->files[s->file_of[tensor]];
    int64_t size = element_bytes(t), elements = ndp_tensor_elements(t), most = NDP_CHUNK_BYTES / size;
    for (int64_t first = 0; first < elements; first += most) {
        int64_t count = elements - first < most ? elements - first : most;
        ndp_chunk *chunk = &f->chunks[f->n_chunks++];
        *chunk = (ndp_chunk){.offset = offset + first * size, .bytes = count * size};
        s->parts[s->n_parts++] = (ndp_shard_part){s->file_of[tensor], tensor, first, count, chunk};
    }
}

/* `members`: the tensors, in the order of the files. */
static ndp_status cut_file(ndp_shards *s, int file, const int *members, int64_t *offsets) {
    ndp_shard_file *f = &s->files[file];
    int64_t n_chunks = 1;
    NDP_TRY(ndp_safetensors_size(f->specs, f->n, &f->bytes, offsets));
    for (int i = 0; i < f->n; i++)
        n_chunks += parts_of(&f->specs[i]);
    f->chunks = ndp_arena_alloc(&s->arena, (size_t)n_chunks * sizeof *f->chunks);
    NDP_CHECK_MEMORY(f->chunks, "to plan %lld chunks of %s", (long long)n_chunks, f->name);
    f->chunks[f->n_chunks++] = (ndp_chunk){.offset = 0, .bytes = offsets[0]};
    for (int i = 0; i < f->n; i++)
        cut_tensor(s, members[i], offsets[i]);
    return NDP_OK;
}

static ndp_status cut_chunks(ndp_shards *s) {
    int64_t n_parts = 0, *offsets = ndp_arena_alloc(&s->arena, (size_t)s->n * sizeof *offsets);
    int *members = ndp_arena_alloc(&s->arena, (size_t)s->n * sizeof *members);
    for (int i = 0; i < s->n; i++)
        n_parts += parts_of(&s->specs[i]);
    s->parts = ndp_arena_alloc(&s->arena, ((size_t)n_parts + 1) * sizeof *s->parts);
    NDP_CHECK_MEMORY(offsets && members && s->parts, "to plan %lld chunks", (long long)n_parts);
    for (int f = 0; f < s->n_files; f++) {
        for (int i = 0; i < s->n; i++)
            if (s->file_of[i] == f)
                members[s->place[i]] = i;
        NDP_TRY(cut_file(s, f, members, offsets));
    }
    return NDP_OK;
}

ndp_status ndp_shards_plan(ndp_shards *s, const ndp_tensor_spec *specs, int n, const char *const *stems, int n_stems,
                           int64_t max_bytes) {
    NDP_CHECK(n > 0 && max_bytes > 0, "%d tensors in files of at most %lld bytes: nothing to save", n,
              (long long)max_bytes);
    int64_t whole; /* size as a single file, which checks names, types and shapes */
    NDP_TRY(ndp_safetensors_size(specs, n, &whole, NULL));
    s->specs = specs;
    s->n = n;
    s->files = ndp_arena_alloc(&s->arena, (size_t)n * sizeof *s->files);
    s->file_of = ndp_arena_alloc(&s->arena, (size_t)n * sizeof *s->file_of);
    s->place = ndp_arena_alloc(&s->arena, (size_t)n * sizeof *s->place);
    s->indices = ndp_arena_alloc(&s->arena, (size_t)n_stems * sizeof *s->indices);
    NDP_CHECK_MEMORY(s->files && s->file_of && s->place && s->indices, "to plan files for %d tensors", n);
    for (int stem = 0; stem < n_stems; stem++)
        cut_stem(s, stem, stems, n_stems, max_bytes);
    NDP_TRY(fill_files(s));
    return cut_chunks(s);
}

void ndp_shards_release(ndp_shards *s) {
    ndp_arena_release(&s->arena);
    *s = (ndp_shards){0};
}

/* ---- system calls ---- */

ndp_status ndp_durable_rename(const char *from, const char *to) {
    if (ndp_fault(NDP_FAULT_RENAME) || rename(from, to))
        return NDP_FAIL(NDP_EIO, "cannot rename '%s' to '%s': %s", from, to, strerror(errno));
    return NDP_OK;
}

ndp_status ndp_rename_new(const char *from, const char *to, bool *taken) {
    int r = ndp_fault(NDP_FAULT_RENAME) ? -1 : renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE);
    if (r && (errno == EINVAL || errno == ENOSYS)) {
        struct stat info;
        r = lstat(to, &info) == 0 ? (errno = EEXIST, -1) : rename(from, to);
    }
    *taken = r && (errno == EEXIST || errno == ENOTEMPTY);
    if (r && !*taken)
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
