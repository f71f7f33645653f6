#include "data/cache.h"

#include "base/cpu.h"
#include "data/source.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

enum {
    FORMAT_VERSION = 1,
    SHARE_BYTES = 1 << 20, /* of text that a thread takes at a time, up to the end of a document */
    SHARES_PER_THREAD = 4  /* between two writes: some take longer than others */
};
static const char MAGIC[8] = "NDPTOKEN";

typedef struct header {
    char magic[8];
    uint32_t version, id_bytes;
    ndp_hash128 key;     /* of what it was made from: also its name */
    ndp_hash128 payload; /* of all behind the header */
    uint64_t n_documents, n_tokens;
    int64_t largest_id;
    uint64_t hash; /* of the header up to here */
} header;

static uint64_t header_hash(const header *h) { return XXH3_64bits(h, offsetof(header, hash)); }

static uint64_t ids_bytes(const header *h) { return (h->n_tokens * h->id_bytes + 7) / 8 * 8; }

/* ---- opening ---- */

static bool header_is_sound(const header *h, size_t file_size) {
    if (memcmp(h->magic, MAGIC, sizeof MAGIC) || h->version != FORMAT_VERSION || h->hash != header_hash(h))
        return false;
    if ((h->id_bytes != 2 && h->id_bytes != 4) || h->n_tokens > file_size || h->n_documents > file_size)
        return false;
    return file_size == sizeof *h + ids_bytes(h) + 8 * (h->n_documents + 1);
}

ndp_status ndp_token_cache_open(const char *path, ndp_token_cache *out) {
    ndp_mapped file;
    NDP_TRY(ndp_file_map(path, &file));
    header h = {0};
    if (file.size >= sizeof h)
        memcpy(&h, file.data, sizeof h);
    if (file.size < sizeof h || !header_is_sound(&h, file.size)) {
        ndp_status st = NDP_FAIL(NDP_EFORMAT, "%s: the token cache is damaged or cut short (%zu bytes); remove it",
                                 path, file.size);
        ndp_file_unmap(&file);
        return st;
    }
    const unsigned char *ids = file.data + sizeof h;
    *out = (ndp_token_cache){.file = file,
                             .ids = ids,
                             .offsets = (const uint64_t *)(const void *)(ids + ids_bytes(&h)),
                             .n_documents = (int64_t)h.n_documents,
                             .n_tokens = (int64_t)h.n_tokens,
                             .id_bytes = (int)h.id_bytes,
                             .largest_id = (int32_t)h.largest_id};
    return NDP_OK;
}

void ndp_token_cache_close(ndp_token_cache *c) {
    ndp_file_unmap(&c->file);
    *c = (ndp_token_cache){0};
}

/* Is there a whole cache with this key? Reads all of it. */
static bool cache_is_whole(const char *path, ndp_hash128 key) {
    ndp_token_cache c;
    if (!ndp_path_exists(path) || ndp_token_cache_open(path, &c) != NDP_OK)
        return false;
    header h;
    memcpy(&h, c.file.data, sizeof h);
    XXH128_hash_t hash = XXH3_128bits(c.file.data + sizeof h, c.file.size - sizeof h);
    ndp_token_cache_close(&c);
    return !memcmp(&h.key, &key, sizeof key) && hash.low64 == h.payload.low && hash.high64 == h.payload.high;
}

/* ---- building ---- */

/* A stretch of a file, and its documents in tokens: what one thread does at a time. */
typedef struct share {
    ndp_source_chunk chunk;
    uint64_t bytes_before; /* of the files before this one */
    const ndp_dataset_options *o;
    ndp_ids ids;
    int64_t *ends; /* of the documents, in ids */
    int64_t n, capacity;
    ndp_status status;
    char *message; /* a thread's error is its own: carried over to the one that reports */
} share;

typedef struct builder {
    const ndp_dataset_options *o;
    FILE *file;
    XXH3_state_t *hash;
    header h;
    share *shares;
    int n_shares, threads;
    uint64_t *offsets;
    int64_t offsets_capacity;
    uint64_t bytes_total, reported; /* of the sources */
} builder;

static ndp_status put(builder *b, const void *data, size_t n) {
    XXH3_128bits_update(b->hash, data, n);
    return fwrite(data, 1, n, b->file) == n ? NDP_OK : NDP_FAIL(NDP_EIO, "%s", strerror(errno));
}

static ndp_status put_ids(builder *b, const ndp_ids *ids) {
    for (int64_t i = 0; i < ids->n; i++)
        b->h.largest_id = ids->items[i] > b->h.largest_id ? ids->items[i] : b->h.largest_id;
    if (b->h.id_bytes == 4)
        return put(b, ids->items, (size_t)ids->n * 4);
    uint16_t narrow[4096];
    for (int64_t i = 0, n; i < ids->n; i += n) {
        n = ids->n - i < NDP_COUNT(narrow) ? ids->n - i : NDP_COUNT(narrow);
        for (int64_t k = 0; k < n; k++)
            narrow[k] = (uint16_t)ids->items[i + k];
        NDP_TRY(put(b, narrow, (size_t)n * 2));
    }
    return NDP_OK;
}

static ndp_status encode_document(void *user, const ndp_document *d) {
    share *s = user;
    int64_t before = s->ids.n;
    if (!d->n)
        return NDP_OK;
    if (ndp_tokenizer_encode(s->o->tokenizer, d->text, d->n, true, &s->ids) != NDP_OK) {
        char *cause = ndp_format("%s", ndp_error_message());
        ndp_status st =
            NDP_FAIL(NDP_EFORMAT, "%s:%lld: %s", d->path, (long long)d->line, cause ? cause : "not tokenized");
        free(cause);
        return st;
    }
    if (s->ids.n == before)
        return NDP_OK;
    NDP_TRY(ndp_array_reserve(&s->ends, &s->capacity, s->n + 1, sizeof *s->ends));
    s->ends[s->n++] = s->ids.n;
    return NDP_OK;
}

static void encode_share(share *s) {
    s->ids.n = s->n = 0;
    s->status = ndp_source_visit_chunk(&s->chunk, s->o->text_field, encode_document, s);
    if (s->status != NDP_OK)
        s->message = ndp_format("%s", ndp_error_message());
}

static ndp_status put_share(builder *b, const share *s) {
    if (s->status != NDP_OK)
        return NDP_FAIL(s->status, "%s", s->message ? s->message : "not enough memory to tokenize");
    NDP_TRY(put_ids(b, &s->ids));
    int64_t documents = (int64_t)b->h.n_documents + s->n;
    NDP_TRY(ndp_array_reserve(&b->offsets, &b->offsets_capacity, documents + 1, sizeof *b->offsets));
    for (int64_t i = 0; i < s->n; i++)
        b->offsets[++b->h.n_documents] = b->h.n_tokens + (uint64_t)s->ends[i];
    b->h.n_tokens += (uint64_t)s->ids.n;
    uint64_t done = s->bytes_before + s->chunk.end;
    if (b->o->progress && (done - b->reported >= 1 << 20 || done == b->bytes_total)) {
        b->reported = done;
        b->o->progress(b->o->progress_user, done, b->bytes_total);
    }
    return NDP_OK;
}

/* Tokenizes the shares on all threads and writes them in their order. */
static ndp_status put_shares(builder *b, int n) {
#pragma omp parallel for schedule(dynamic, 1) num_threads(b->threads)
    for (int i = 0; i < n; i++)
        encode_share(&b->shares[i]);
    for (int i = 0; i < n; i++)
        NDP_TRY(put_share(b, &b->shares[i]));
    return NDP_OK;
}

static ndp_status put_documents(builder *b, const ndp_mapped *sources) {
    uint64_t before = 0;
    int n = 0;
    for (int i = 0; i < b->o->n_files; before += sources[i++].size) {
        ndp_source_chunk c;
        NDP_TRY(ndp_source_begin(b->o->files[i], (const char *)sources[i].data, sources[i].size, &c));
        while (ndp_source_next(&c, SHARE_BYTES)) {
            b->shares[n].chunk = c;
            b->shares[n].bytes_before = before;
            if (++n < b->n_shares)
                continue;
            NDP_TRY(put_shares(b, n));
            n = 0;
        }
    }
    return put_shares(b, n);
}

/* All behind the header, then the header itself. */
static ndp_status put_all(builder *b, const ndp_mapped *sources) {
    if (fseek(b->file, sizeof b->h, SEEK_SET))
        return NDP_FAIL(NDP_EIO, "%s", strerror(errno));
    NDP_TRY(put_documents(b, sources));
    if (!b->h.n_documents)
        return NDP_FAIL(NDP_EINVAL, "the corpus is empty: %d file%s (%s%s) without a document", b->o->n_files,
                        b->o->n_files == 1 ? "" : "s", b->o->files[0], b->o->n_files == 1 ? "" : ", ...");
    NDP_TRY(put(b, (const char[8]){0}, ids_bytes(&b->h) - b->h.n_tokens * b->h.id_bytes));
    NDP_TRY(put(b, b->offsets, 8 * (b->h.n_documents + 1)));
    XXH128_hash_t hash = XXH3_128bits_digest(b->hash);
    b->h.payload = (ndp_hash128){hash.low64, hash.high64};
    b->h.hash = header_hash(&b->h);
    if (fseek(b->file, 0, SEEK_SET) || fwrite(&b->h, sizeof b->h, 1, b->file) != 1 || fflush(b->file) ||
        fsync(fileno(b->file)))
        return NDP_FAIL(NDP_EIO, "%s", strerror(errno));
    return NDP_OK;
}

/* Errors of writing know no name; it is added here, with what to do. */
static ndp_status fail_writing(const char *path, const char *cause) {
    char *copy = ndp_format("%s", cause);
    ndp_status st = NDP_FAIL(NDP_EIO, "cannot write the token cache '%s': %s; data.cache_dir may name another folder",
                             path, copy ? copy : "");
    free(copy);
    return st;
}

static ndp_status build_file(builder *b, const ndp_mapped *sources, const char *beside, const char *path) {
    b->file = fopen(beside, "wbe");
    if (!b->file)
        return fail_writing(beside, strerror(errno));
    ndp_status st = put_all(b, sources);
    if (fclose(b->file) && st == NDP_OK)
        st = NDP_FAIL(NDP_EIO, "%s", strerror(errno));
    if (st == NDP_OK && rename(beside, path))
        st = NDP_FAIL(NDP_EIO, "%s", strerror(errno));
    if (st == NDP_OK)
        return NDP_OK;
    unlink(beside);
    return st == NDP_EIO ? fail_writing(path, ndp_error_message()) : st;
}

static void release_builder(builder *b) {
    for (int i = 0; b->shares && i < b->n_shares; i++) {
        ndp_ids_release(&b->shares[i].ids);
        free(b->shares[i].ends);
        free(b->shares[i].message);
    }
    free(b->shares);
    XXH3_freeState(b->hash);
    free(b->offsets);
}

static ndp_status build(const ndp_dataset_options *o, const ndp_mapped *sources, ndp_hash128 key, const char *path) {
    builder b = {.o = o,
                 .hash = XXH3_createState(),
                 .threads = o->threads ? o->threads : ndp_cpu_cores(),
                 .h = {.version = FORMAT_VERSION,
                       .id_bytes = ndp_tokenizer_vocab_size(o->tokenizer) <= 65536 ? 2 : 4,
                       .key = key}};
    memcpy(b.h.magic, MAGIC, sizeof MAGIC);
    for (int i = 0; i < o->n_files; i++)
        b.bytes_total += sources[i].size;
    b.n_shares = SHARES_PER_THREAD * b.threads;
    b.shares = calloc((size_t)b.n_shares, sizeof *b.shares);
    char *beside = ndp_format("%s.tmp-%d-%d", path, (int)getpid(), (int)gettid());
    ndp_status st = ndp_array_reserve(&b.offsets, &b.offsets_capacity, 1, sizeof *b.offsets);
    if (st == NDP_OK && (!b.hash || !b.shares || !beside))
        st = NDP_FAIL(NDP_ENOMEM, "not enough memory to tokenize");
    if (st == NDP_OK) {
        for (int i = 0; i < b.n_shares; i++)
            b.shares[i].o = o;
        b.offsets[0] = 0;
        XXH3_128bits_reset(b.hash);
        st = build_file(&b, sources, beside, path);
    }
    release_builder(&b);
    free(beside);
    return st;
}

/* ---- finding ---- */

/* What the ids depend on, and nothing else: not where the files lie. */
static ndp_status key_of(const ndp_dataset_options *o, const ndp_mapped *sources, ndp_hash128 *key) {
    ndp_str all = {0};
    ndp_hash128 tokenizer = ndp_tokenizer_fingerprint(o->tokenizer);
    ndp_str_addf(&all, "tokens %d %016llx%016llx %s", FORMAT_VERSION, (unsigned long long)tokenizer.high,
                 (unsigned long long)tokenizer.low, o->text_field ? o->text_field : "text");
    for (int i = 0; i < o->n_files; i++) {
        ndp_source_kind kind;
        ndp_status st = ndp_source_kind_of(o->files[i], &kind);
        if (st != NDP_OK) {
            ndp_str_release(&all);
            return st;
        }
        XXH128_hash_t h = XXH3_128bits(sources[i].data, sources[i].size);
        ndp_str_addf(&all, " %d %zu %016llx%016llx", (int)kind, sources[i].size, (unsigned long long)h.high64,
                     (unsigned long long)h.low64);
    }
    bool failed = all.failed;
    XXH128_hash_t h = failed ? (XXH128_hash_t){0} : XXH3_128bits(all.data, all.length);
    ndp_str_release(&all);
    if (failed)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory to name the token cache");
    *key = (ndp_hash128){h.low64, h.high64};
    return NDP_OK;
}

/* The folder, made where it is missing. The caller frees. */
static ndp_status cache_folder(const ndp_dataset_options *o, char **out) {
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char *folder = NULL;
    if (o->cache_dir)
        folder = strdup(o->cache_dir);
    else if (xdg && xdg[0])
        folder = ndp_format("%s/ndparallel", xdg);
    else if (home && home[0])
        folder = ndp_format("%s/.cache/ndparallel", home);
    else
        return NDP_FAIL(NDP_EINVAL, "no folder for the token cache: HOME is not set; set data.cache_dir");
    if (!folder)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory to name the token cache");
    ndp_status st = ndp_folder_create(folder);
    if (st != NDP_OK) {
        st = fail_writing(folder, ndp_error_message());
        free(folder);
        return st;
    }
    *out = folder;
    return NDP_OK;
}

static ndp_status find_or_build(const ndp_dataset_options *o, const ndp_mapped *sources, char **out) {
    ndp_hash128 key;
    char *folder = NULL;
    NDP_TRY(key_of(o, sources, &key));
    NDP_TRY(cache_folder(o, &folder));
    char *path =
        ndp_format("%s/%016llx%016llx.tokens", folder, (unsigned long long)key.high, (unsigned long long)key.low);
    ndp_status st = path ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "not enough memory to name the token cache");
    if (st == NDP_OK && !cache_is_whole(path, key)) {
        st = build(o, sources, key, path);
        if (st == NDP_OK)
            st = ndp_folder_sync(folder);
    }
    free(folder);
    if (st != NDP_OK) {
        free(path);
        return st;
    }
    *out = path;
    return NDP_OK;
}

ndp_status ndp_dataset_prepare(const ndp_dataset_options *o, char **path) {
    NDP_CHECK(o->n_files > 0, "no data: data.files names no file");
    ndp_mapped *sources = calloc((size_t)o->n_files, sizeof *sources);
    if (!sources)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for %d files", o->n_files);
    ndp_status st = NDP_OK;
    for (int i = 0; i < o->n_files && st == NDP_OK; i++)
        st = ndp_file_map(o->files[i], &sources[i]);
    if (st == NDP_OK)
        st = find_or_build(o, sources, path);
    for (int i = 0; i < o->n_files; i++)
        if (sources[i].data)
            ndp_file_unmap(&sources[i]);
    free(sources);
    return st;
}
