#include "data/cache.h"

#include "data/cache_file.h"
#include "data/source.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

uint64_t ndp_cache_header_hash(const ndp_cache_header *h) { return XXH3_64bits(h, offsetof(ndp_cache_header, hash)); }

/* ---- opening ---- */

static bool header_is_sound(const ndp_cache_header *h, size_t file_size) {
    if (memcmp(h->magic, NDP_CACHE_MAGIC, sizeof h->magic) || h->version != NDP_CACHE_VERSION ||
        h->hash != ndp_cache_header_hash(h))
        return false;
    if ((h->id_bytes != 2 && h->id_bytes != 4) || h->n_tokens > file_size || h->n_documents > file_size ||
        h->n_sources > INT32_MAX)
        return false;
    return file_size ==
           sizeof *h + ndp_cache_ids_bytes(h) + 8 * (h->n_documents + 1 + h->n_sources) + ndp_cache_bits_bytes(h);
}

ndp_status ndp_token_cache_open(const char *path, ndp_token_cache *out) {
    ndp_mapped file;
    NDP_TRY(ndp_file_map(path, &file));
    ndp_cache_header h = {0};
    if (file.size >= sizeof h)
        memcpy(&h, file.data, sizeof h);
    if (file.size < sizeof h || !header_is_sound(&h, file.size)) {
        ndp_status st = NDP_FAIL(NDP_EFORMAT, "%s: the token cache is damaged or cut short (%zu bytes); remove it",
                                 path, file.size);
        ndp_file_unmap(&file);
        return st;
    }
    const unsigned char *ids = file.data + sizeof h, *offsets = ids + ndp_cache_ids_bytes(&h);
    const unsigned char *sources = offsets + 8 * (h.n_documents + 1);
    *out = (ndp_token_cache){.file = file,
                             .ids = ids,
                             .offsets = (const uint64_t *)(const void *)offsets,
                             .source_ends = (const uint64_t *)(const void *)sources,
                             .learned = h.partly ? sources + 8 * (size_t)h.n_sources : NULL,
                             .n_documents = (int64_t)h.n_documents,
                             .n_tokens = (int64_t)h.n_tokens,
                             .n_sources = (int)h.n_sources,
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
    ndp_cache_header h;
    memcpy(&h, c.file.data, sizeof h);
    XXH128_hash_t hash = XXH3_128bits(c.file.data + sizeof h, c.file.size - sizeof h);
    ndp_token_cache_close(&c);
    return !memcmp(&h.key, &key, sizeof key) && hash.low64 == h.payload.low && hash.high64 == h.payload.high;
}

/* ---- finding ---- */

static const char *or_default(const char *field, const char *name) { return field ? field : name; }

/* What the ids depend on besides the files. A zero byte behind each text: names may hold anything else. */
static void add_format(const ndp_dataset_options *o, ndp_str *all) {
    const ndp_record_format *f = &o->format;
    ndp_hash128 tokenizer = ndp_tokenizer_fingerprint(o->tokenizer);
    ndp_str_addf(all, "tokens %d %016llx%016llx %d %d %d %d %d %lld", NDP_CACHE_VERSION,
                 (unsigned long long)tokenizer.high, (unsigned long long)tokenizer.low, ndp_tokenizer_bos(o->tokenizer),
                 ndp_tokenizer_eos(o->tokenizer), (int)f->kind, f->learn_all, o->bin_id_bytes, (long long)o->vocab);
    const char *const texts[] = {or_default(f->text, "text"),
                                 or_default(f->messages, "messages"),
                                 or_default(f->prompt, "instruction"),
                                 or_default(f->input, "input"),
                                 or_default(f->response, "response/output"),
                                 f->chat ? ndp_chat_name(f->chat) : ""};
    for (int i = 0; i < NDP_COUNT(texts); i++)
        ndp_str_add_bytes(all, texts[i], strlen(texts[i]) + 1);
}

/* What the ids depend on, and nothing else: not where the files lie. */
static ndp_status key_of(const ndp_dataset_options *o, const ndp_cache_sources *s, ndp_hash128 *key) {
    ndp_str all = {0};
    add_format(o, &all);
    for (int i = 0; i < o->n_files; i++)
        ndp_str_addf(&all, " %lld", (long long)s->source_ends[i]);
    for (int64_t i = 0; i < s->files.n; i++) {
        ndp_source_kind kind;
        ndp_status st = ndp_source_kind_of(s->files.paths[i], &kind);
        if (st != NDP_OK) {
            ndp_str_release(&all);
            return st;
        }
        XXH128_hash_t h = XXH3_128bits(s->mapped[i].data, s->mapped[i].size);
        ndp_str_addf(&all, " %d %zu %016llx%016llx", (int)kind, s->mapped[i].size, (unsigned long long)h.high64,
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
        st = ndp_cache_fail_writing(folder, ndp_error_message());
        free(folder);
        return st;
    }
    *out = folder;
    return NDP_OK;
}

static ndp_status find_or_build(const ndp_dataset_options *o, const ndp_cache_sources *sources, char **out) {
    ndp_hash128 key;
    char *folder = NULL;
    NDP_TRY(key_of(o, sources, &key));
    NDP_TRY(cache_folder(o, &folder));
    char *path =
        ndp_format("%s/%016llx%016llx.tokens", folder, (unsigned long long)key.high, (unsigned long long)key.low);
    ndp_status st = path ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "not enough memory to name the token cache");
    if (st == NDP_OK && !cache_is_whole(path, key)) {
        st = ndp_cache_build(o, sources, key, path);
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

static ndp_status list_files(const ndp_dataset_options *o, ndp_cache_sources *s) {
    s->source_ends = calloc((size_t)o->n_files, sizeof *s->source_ends);
    if (!s->source_ends)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for %d files", o->n_files);
    for (int i = 0; i < o->n_files; i++) {
        NDP_TRY(ndp_file_list_add(&s->files, o->files[i]));
        s->source_ends[i] = s->files.n;
    }
    s->mapped = calloc((size_t)s->files.n, sizeof *s->mapped);
    if (!s->mapped)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for %lld files", (long long)s->files.n);
    for (int64_t i = 0; i < s->files.n; i++)
        NDP_TRY(ndp_file_map(s->files.paths[i], &s->mapped[i]));
    return NDP_OK;
}

static void release_sources(ndp_cache_sources *s) {
    for (int64_t i = 0; s->mapped && i < s->files.n; i++)
        if (s->mapped[i].data)
            ndp_file_unmap(&s->mapped[i]);
    free(s->mapped);
    free(s->source_ends);
    ndp_file_list_release(&s->files);
}

ndp_status ndp_dataset_prepare(const ndp_dataset_options *o, char **path) {
    NDP_CHECK(o->n_files > 0, "no data: data.files names no file");
    ndp_cache_sources sources = {0};
    ndp_status st = list_files(o, &sources);
    if (st == NDP_OK && o->left_out)
        *o->left_out = sources.files.left_out;
    if (st == NDP_OK)
        st = find_or_build(o, &sources, path);
    release_sources(&sources);
    return st;
}
