#include "data/cache/cache.h"

#include "data/cache/cache_file.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

uint64_t ndp_cache_header_hash(const ndp_cache_header *h) { return XXH3_64bits(h, offsetof(ndp_cache_header, hash)); }

/* ---- opening ---- */

static bool header_is_sound(const ndp_cache_header *h, size_t file_size) {
    if (memcmp(h->magic, NDP_CACHE_MAGIC, sizeof h->magic) || h->version != NDP_CACHE_VERSION ||
        h->hash != ndp_cache_header_hash(h))
        return false;
    if ((h->id_bytes != 2 && h->id_bytes != 4) || h->n_tokens > file_size || h->n_documents > file_size ||
        h->n_sources > file_size || h->largest_id < 0 || h->largest_id > INT32_MAX)
        return false;
    return file_size ==
           sizeof *h + ndp_cache_ids_bytes(h) + 8 * (h->n_documents + 1 + h->n_sources) + ndp_cache_bits_bytes(h);
}

/* Documents and sources in order, each within the one above: rows are cut out by these numbers. */
static bool tables_are_sound(const ndp_token_cache *c) {
    bool sound = true;
    uint64_t last = 0;
    for (int64_t i = 0; i <= c->n_documents; last = c->offsets[i++])
        sound &= c->offsets[i] >= last && c->offsets[i] <= (uint64_t)c->n_tokens;
    last = 0;
    for (int64_t i = 0; i < c->n_sources; last = c->source_ends[i++])
        sound &= c->source_ends[i] >= last && c->source_ends[i] <= (uint64_t)c->n_documents;
    return sound;
}

/* The arrays of a file whose header is sound. */
static ndp_token_cache lay_out(const ndp_mapped *file, const ndp_cache_header *h) {
    const unsigned char *ids = file->data + sizeof *h, *offsets = ids + ndp_cache_ids_bytes(h);
    const unsigned char *sources = offsets + 8 * (h->n_documents + 1);
    return (ndp_token_cache){.file = *file,
                             .ids = ids,
                             .offsets = (const uint64_t *)(const void *)offsets,
                             .source_ends = (const uint64_t *)(const void *)sources,
                             .learned = h->partly ? sources + 8 * (size_t)h->n_sources : NULL,
                             .n_documents = (int64_t)h->n_documents,
                             .n_tokens = (int64_t)h->n_tokens,
                             .n_texts = (int64_t)h->n_texts,
                             .n_sources = (int)h->n_sources,
                             .id_bytes = (int)h->id_bytes,
                             .largest_id = (int32_t)h->largest_id,
                             .payload = h->payload};
}

ndp_status ndp_token_cache_read(const char *path, const ndp_mapped *file, ndp_token_cache *out) {
    ndp_cache_header h = {0};
    if (file->size >= sizeof h)
        memcpy(&h, file->data, sizeof h);
    if (file->size >= sizeof h && !memcmp(h.magic, NDP_CACHE_MAGIC, sizeof h.magic) && h.version != NDP_CACHE_VERSION)
        return NDP_FAIL(NDP_EFORMAT,
                        "%s: a token cache of version %u; this program makes and reads version %d; remove it", path,
                        h.version, NDP_CACHE_VERSION);
    bool sound = file->size >= sizeof h && header_is_sound(&h, file->size);
    ndp_token_cache c = {0};
    if (sound)
        c = lay_out(file, &h);
    if (!sound || !tables_are_sound(&c))
        return NDP_FAIL(NDP_EFORMAT, "%s: the token cache is damaged or cut short (%zu bytes); remove it", path,
                        file->size);
    *out = c;
    return NDP_OK;
}

ndp_status ndp_token_cache_open(const char *path, ndp_token_cache *out) {
    ndp_mapped file;
    NDP_TRY(ndp_file_map(path, &file));
    ndp_status st = ndp_token_cache_read(path, &file, out);
    return st == NDP_OK ? NDP_OK : ndp_file_end(&file, st);
}

void ndp_token_cache_close(ndp_token_cache *c) {
    ndp_file_unmap(&c->file);
    free(c->memory);
    *c = (ndp_token_cache){0};
}

/* Is there a whole cache with this key, of ids that the model has? Reads all of it. */
static bool cache_is_whole(const ndp_dataset_options *o, const char *path, ndp_hash128 key) {
    ndp_token_cache c;
    if (!ndp_path_exists(path) || ndp_token_cache_open(path, &c) != NDP_OK)
        return false;
    ndp_cache_header h;
    ndp_hash128 payload;
    memcpy(&h, c.file.data, sizeof h);
    ndp_status st = ndp_hash_blocks(c.file.data + sizeof h, c.file.size - sizeof h, ndp_dataset_threads(o), &payload);
    ndp_token_cache_close(&c);
    return st == NDP_OK && (o->vocab == 0 || h.largest_id < o->vocab) && !memcmp(&h.key, &key, sizeof key) &&
           !memcmp(&h.payload, &payload, sizeof payload);
}

/* ---- finding ---- */

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

/* What a leader tells: the name of the cache, and whether it is to be built, of which files. */
typedef struct finding {
    char name[NDP_CREW_NAME];
    uint32_t build;
    uint64_t stamp;
    ndp_hash128 key;
} finding;

typedef struct search {
    const ndp_dataset_options *o;
    const char *folder;
    ndp_corpus corpus; /* open once `opened` */
    bool opened;
} search;

static ndp_status open_corpus(search *s) {
    NDP_TRY(ndp_corpus_open(s->o, &s->corpus));
    s->opened = true;
    if (s->o->left_out)
        *s->o->left_out = s->corpus.files.left_out;
    return NDP_OK;
}

static char *path_of(const search *s, const char *name) { return ndp_format("%s/%s", s->folder, name); }

static ndp_status find(search *s, finding *out) {
    finding f = {.build = 1};
    NDP_TRY(open_corpus(s));
    ndp_hash128 content;
    NDP_TRY(ndp_corpus_key(&s->corpus, s->o, &f.key, &content));
    if (s->o->content)
        *s->o->content = content;
    f.stamp = s->corpus.stamp;
    snprintf(f.name, sizeof f.name, "%016llx%016llx.tokens", (unsigned long long)f.key.high,
             (unsigned long long)f.key.low);
    char *path = path_of(s, f.name);
    if (!path)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory to name the token cache");
    f.build = !cache_is_whole(s->o, path, f.key);
    free(path);
    *out = f;
    return NDP_OK;
}

/* For a leader who cannot write: then all has to be there. */
static ndp_status find_without_writing(void *user, char name[NDP_CREW_NAME]) {
    search *s = user;
    finding f;
    char *cause = ndp_format("%s", ndp_error_message());
    ndp_status st = find(s, &f);
    if (st == NDP_OK && f.build)
        st = ndp_cache_fail_writing(s->folder, cause ? cause : "");
    if (st == NDP_OK)
        memcpy(name, f.name, sizeof f.name);
    free(cause);
    return st;
}

/* A rank that fails has its own message; the others return as if all were well, and learn of it when they agree. */
static ndp_status find_or_build(search *s, const ndp_crew *crew, finding *f) {
    char told[NDP_CREW_PATH], *bytes;
    size_t size;
    ndp_crew_path(crew, told, "found");
    if (crew->rank == 0) {
        NDP_TRY(find(s, f));
        NDP_TRY(ndp_file_write_atomic(told, f, sizeof *f));
    } else {
        if (!ndp_crew_wait(crew, "found", NULL, NULL))
            return NDP_OK;
        NDP_TRY(ndp_file_read_as(NDP_FILE_CONFIG, told, &bytes, &size));
        memcpy(f, bytes, size < sizeof *f ? size : sizeof *f);
        f->name[sizeof f->name - 1] = '\0';
        free(bytes);
    }
    if (!f->build)
        return NDP_OK;
    bool sees = crew->rank == 0 || (open_corpus(s) == NDP_OK && s->corpus.stamp == f->stamp);
    char *path = path_of(s, f->name);
    ndp_status st = path ? ndp_cache_build(s->o, crew, sees ? &s->corpus : NULL, f->key, path)
                         : NDP_FAIL(NDP_ENOMEM, "not enough memory to name the token cache");
    free(path);
    return st;
}

static ndp_status agree(const ndp_dataset_options *o, ndp_status mine) {
    return o->team ? o->team->agree(o->team->user, mine) : mine;
}

static ndp_status prepare(search *s, char **path) {
    ndp_crew crew;
    finding f = {.build = 0};
    NDP_TRY(ndp_crew_form(s->o->team, s->folder, find_without_writing, s, &crew));
    ndp_status st = NDP_OK;
    if (crew.work)
        st = find_or_build(s, &crew, &f);
    else
        memcpy(f.name, crew.there, sizeof f.name);
    if (st != NDP_OK)
        ndp_crew_stop(&crew);
    st = agree(s->o, st);
    ndp_crew_dissolve(&crew);
    NDP_TRY(st);
    *path = path_of(s, f.name);
    return *path ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "not enough memory to name the token cache");
}

ndp_status ndp_dataset_prepare(const ndp_dataset_options *o, char **path) {
    NDP_CHECK(o->n_files > 0, "no data: data.files names no file");
    char *folder = NULL;
    search s = {.o = o};
    ndp_status st = agree(o, cache_folder(o, &folder));
    if (st == NDP_OK) {
        s.folder = folder;
        st = prepare(&s, path);
    }
    if (s.opened)
        ndp_corpus_close(&s.corpus);
    free(folder);
    return st;
}
