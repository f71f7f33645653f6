/* Whether a checkpoint is whole. Every rank reads the manifest and checks the files' sizes; then the chunks are divided
 * among the ranks: each is read and hashed by one rank, and the result is shared with all. Called by resume.c,
 * inventory.c and checkpoint.c. */
#include "base/text.h"
#include "checkpoint/agree.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/steps.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* What is wrong with a chunk. */
enum { FINE, OTHER_HASH, UNREADABLE, NO_MEMORY };

typedef struct chunk_check {
    const char *path; /* of the checkpoint */
    const ndp_manifest *manifest;
    int *files; /* descriptors */
    int64_t n;  /* chunks of all files */
    const ndp_chunk **chunks;
    int *file_of; /* of each chunk */
    int64_t *wrong;
    ndp_arena arena; /* of the lists */
} chunk_check;

/* ---- reading the chunks ---- */

static ndp_status open_files(chunk_check *r) {
    const ndp_manifest *m = r->manifest;
    for (int i = 0; i < m->n_files; i++) {
        char path[NDP_PATH];
        struct stat info;
        NDP_TRY(ndp_path_join(path, r->path, m->files[i].name));
        r->files[i] = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (r->files[i] < 0 || fstat(r->files[i], &info))
            return NDP_FAIL(NDP_EIO, "cannot read '%s': %s", path, strerror(errno));
        if (!S_ISREG(info.st_mode) || info.st_size != m->files[i].bytes)
            return NDP_FAIL(NDP_EFORMAT, "'%s' changed while it was being verified", path);
    }
    return NDP_OK;
}

static ndp_status open_reading(chunk_check *r) {
    const ndp_manifest *m = r->manifest;
    r->files = ndp_arena_alloc(&r->arena, ((size_t)m->n_files + 1) * sizeof *r->files);
    for (int i = 0; i < m->n_files; i++)
        r->n += m->files[i].n_chunks;
    r->chunks = ndp_arena_alloc(&r->arena, ((size_t)r->n + 1) * sizeof *r->chunks);
    r->file_of = ndp_arena_alloc(&r->arena, ((size_t)r->n + 1) * sizeof *r->file_of);
    r->wrong = ndp_arena_alloc(&r->arena, ((size_t)r->n + 1) * sizeof *r->wrong);
    for (int i = 0; r->files && i < m->n_files; i++)
        r->files[i] = -1;
    NDP_CHECK_MEMORY(r->files && r->chunks && r->file_of && r->wrong, "to verify %lld chunks", (long long)r->n);
    int64_t at = 0;
    for (int i = 0; i < m->n_files; i++)
        for (int64_t k = 0; k < m->files[i].n_chunks; k++, at++) {
            r->chunks[at] = &m->files[i].chunks[k];
            r->file_of[at] = i;
        }
    return open_files(r);
}

static void close_reading(chunk_check *r) {
    for (int i = 0; r->files && i < r->manifest->n_files; i++)
        if (r->files[i] >= 0)
            close(r->files[i]);
    ndp_arena_release(&r->arena);
}

static bool read_whole(int fd, char *to, int64_t bytes, int64_t offset) {
    while (bytes) {
        ssize_t n = pread(fd, to, (size_t)bytes, offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        to += n;
        offset += n;
        bytes -= n;
    }
    return true;
}

static int64_t verify_chunk(const chunk_check *r, int64_t i, char **room, int64_t *capacity) {
    const ndp_chunk *c = r->chunks[i];
    if (c->bytes > *capacity) {
        free(*room);
        *room = malloc((size_t)c->bytes);
        *capacity = *room ? c->bytes : 0;
    }
    if (!*room)
        return NO_MEMORY;
    if (!read_whole(r->files[r->file_of[i]], *room, c->bytes, c->offset))
        return UNREADABLE;
    return ndp_hash128_equal(ndp_hash_of(*room, (size_t)c->bytes), c->hash) ? FINE : OTHER_HASH;
}

/* Verifies every `ranks`-th chunk, starting at `rank`. */
static void verify_chunks(const chunk_check *r, int rank, int ranks, int threads) {
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        char *room = NULL;
        int64_t capacity = 0;
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = rank; i < r->n; i += ranks)
            r->wrong[i] = verify_chunk(r, i, &room, &capacity);
        free(room);
    }
}

/* ---- words ---- */

/* The tensors in [begin, end) of a file with a valid header: "tensor NAME", or "tensors NAME to NAME". */
static void add_tensors(ndp_str *s, const ndp_safetensors *f, size_t begin, size_t end) {
    int n = 0;
    for (int i = 0; i < ndp_safetensors_count(f); i++) {
        const ndp_tensor_entry *e = ndp_safetensors_at(f, i);
        if (e->bytes && e->offset < end && begin < e->offset + e->bytes)
            ndp_str_addf(s, "%s%s", n++ ? ", " : "tensor ", e->spec.name);
    }
}

/* "model.safetensors: tensor NAME: bytes [a, b) are not those that were saved" */
static void add_chunk(ndp_str *s, const chunk_check *r, int64_t i) {
    const ndp_manifest_file *file = &r->manifest->files[r->file_of[i]];
    const ndp_chunk *c = r->chunks[i];
    bool weights = ndp_ends_with(file->name, ".safetensors");
    ndp_safetensors *f = NULL;
    char path[NDP_PATH];
    bool opens = ndp_path_join(path, r->path, file->name) == NDP_OK;
    ndp_str_addf(s, "%s%s: ", s->length ? "; " : "", file->name);
    if (weights && c->offset == 0)
        ndp_str_add(s, "header");
    else if (weights && opens && !r->wrong[i - (c - file->chunks)] && ndp_safetensors_open(path, &f) == NDP_OK)
        add_tensors(s, f, (size_t)c->offset, (size_t)(c->offset + c->bytes));
    else
        ndp_str_add(s, weights ? "a tensor that its damaged header would name" : "index");
    ndp_str_addf(s, ": bytes [%lld, %lld) %s", (long long)c->offset, (long long)(c->offset + c->bytes),
                 r->wrong[i] == UNREADABLE ? "cannot be read from the disk" : "are not those that were saved");
    ndp_safetensors_close(f);
}

/* Describes the first few damaged chunks; "" if there are none. */
static void describe(const chunk_check *r, char *words, size_t size) {
    enum { SHOWN = 3 };
    ndp_str s = {0};
    int64_t n = 0;
    for (int64_t i = 0; i < r->n; i++)
        if (r->wrong[i] && n++ < SHOWN)
            add_chunk(&s, r, i);
    if (n > SHOWN)
        ndp_str_addf(&s, "; and %lld more of %lld chunks", (long long)(n - SHOWN), (long long)r->n);
    snprintf(words, size, "%s", s.data ? s.data : "");
    ndp_str_release(&s);
}

/* ---- putting it together ---- */

/* Collective: combines the ranks' results; the words are rank 0's. */
static ndp_status share_wrong(ndp_comm *world, const chunk_check *r, ndp_examined *out) {
    NDP_TRY(ndp_reduce_now(world, r->wrong, r->n, NDP_I64, NDP_MAX));
    for (int64_t i = 0; i < r->n; i++)
        if (r->wrong[i] == NO_MEMORY)
            return NDP_FAIL(NDP_ENOMEM, "not enough memory to verify '%s' in chunks of %lld bytes", r->path,
                            (long long)r->chunks[i]->bytes);
    if (ndp_is_first(world))
        describe(r, out->words, sizeof out->words);
    NDP_TRY(ndp_share_now(world, out->words, sizeof out->words, 0));
    out->state = out->words[0] ? NDP_CHECKPOINT_DAMAGED : NDP_CHECKPOINT_VERIFIED;
    return NDP_OK;
}

/* Collective: checks that every rank has read the manifest that rank 0 has. */
static ndp_status compare_manifests(ndp_comm *world, const ndp_manifest *m, const char *path) {
    ndp_hash128 first = m->hash;
    NDP_TRY(ndp_share_now(world, &first, sizeof first, 0));
    return ndp_agree(world, ndp_hash128_equal(first, m->hash)
                                ? NDP_OK
                                : NDP_FAIL(NDP_EIO,
                                           "'%s' has a different manifest here than on rank 0: train.output_dir must "
                                           "be on a disk that all hosts share",
                                           path));
}

static ndp_status read_data(ndp_comm *world, const char *path, const ndp_manifest *m, int threads, ndp_examined *out) {
    chunk_check r = {.path = path, .manifest = m};
    ndp_status st = ndp_agree(world, open_reading(&r));
    if (st == NDP_OK) {
        verify_chunks(&r, world ? ndp_comm_rank(world) : 0, world ? ndp_comm_size(world) : 1, threads);
        st = ndp_agree(world, share_wrong(world, &r, out));
    }
    close_reading(&r);
    return st;
}

static ndp_status examine(ndp_comm *world, const char *folder, int64_t step, const char *path, ndp_manifest *m,
                          bool data, int threads, ndp_examined *out) {
    NDP_TRY(ndp_agree(world, ndp_step_manifest(folder, step, m)));
    NDP_TRY(compare_manifests(world, m, path));
    for (int i = 0; i < m->n_files; i++)
        out->bytes += m->files[i].bytes;
    out->state = m->version == 1 ? NDP_CHECKPOINT_UNVERIFIABLE : NDP_CHECKPOINT_UNREAD;
    return data && m->version > 1 ? read_data(world, path, m, threads, out) : NDP_OK;
}

ndp_status ndp_checkpoint_examine(ndp_comm *world, const char *folder, int64_t step, bool data, int threads,
                                  ndp_examined *out) {
    ndp_manifest m = {0};
    ndp_examined e = {0};
    char path[NDP_PATH];
    NDP_TRY(ndp_step_path(path, folder, step));
    ndp_status st = examine(world, folder, step, path, &m, data, threads, &e);
    if (st == NDP_EFORMAT) { /* damage is a result, not a failure */
        e.state = NDP_CHECKPOINT_DAMAGED;
        e.no_folder = !ndp_path_is_folder(path);
        snprintf(e.words, sizeof e.words, "%s", ndp_error_message());
        st = ndp_share_now(world, &e, sizeof e, 0);
    }
    ndp_manifest_release(&m);
    NDP_TRY(st);
    *out = e;
    return NDP_OK;
}
