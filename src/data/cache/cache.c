/* Finding a token cache by its key, or having it built. The leader of each crew (crew.h) looks and announces what it
 * found; the others follow its announcement, so all ranks of a crew use one cache. A failure of any rank is agreed
 * on before the crew dissolves. Called by rank/tokens.c. */
#include "data/cache/cache.h"

#include "data/cache/cache_build.h"
#include "data/cache/table_files.h"
#include "data/cache/windows.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* ---- finding ---- */

/* Whether a complete cache with this key exists, of ids that the model has. Reads all of it. */
static bool cache_is_whole(const ndp_dataset_options *o, const char *path, ndp_hash128 key) {
    ndp_token_cache c;
    if (!ndp_path_exists(path) || ndp_token_cache_open(path, &c) != NDP_OK)
        return false;
    ndp_cache_header h;
    ndp_hash128 payload;
    memcpy(&h, c.file.data, sizeof h);
    size_t n = ndp_cache_payload_bytes(&h);
    ndp_status st = ndp_hash_blocks(c.file.data + sizeof h, n, ndp_dataset_threads(o), &payload);
    bool more = h.more_hash == XXH3_64bits(c.file.data + sizeof h + n, ndp_cache_more_bytes(&h));
    ndp_token_cache_close(&c);
    return st == NDP_OK && more && (o->vocab == 0 || h.largest_id < o->vocab) && !memcmp(&h.key, &key, sizeof key) &&
           !memcmp(&h.payload, &payload, sizeof payload);
}

ndp_status ndp_cache_folder(const char *cache_dir, char **out) {
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char *folder = NULL;
    if (cache_dir)
        folder = strdup(cache_dir);
    else if (xdg && xdg[0])
        folder = ndp_format("%s/ndparallel", xdg);
    else if (home && home[0])
        folder = ndp_format("%s/.cache/ndparallel", home);
    else
        return NDP_FAIL(NDP_EINVAL, "no folder for the token cache: HOME is not set; set data.cache_dir");
    NDP_CHECK_MEMORY(folder, "to name the token cache");
    ndp_status st = ndp_folder_create(folder);
    if (st != NDP_OK) {
        st = ndp_cache_fail_writing(folder, ndp_error_message());
        free(folder);
        return st;
    }
    *out = folder;
    return NDP_OK;
}

/* What the leader of a crew announces: the cache's name, and whether to build it, from which files. */
typedef struct finding {
    char name[NDP_CREW_NAME];
    uint32_t build;
    uint64_t stamp;
    ndp_hash128 key;
} finding;

typedef struct cache_search {
    const ndp_dataset_options *o;
    const char *folder;
    ndp_corpus corpus; /* open if `opened` */
    bool opened;
} cache_search;

static ndp_status open_corpus(cache_search *s) {
    NDP_TRY(ndp_corpus_open(s->o, &s->corpus));
    s->opened = true;
    return NDP_OK;
}

/* The caller frees. */
static ndp_status path_of(const cache_search *s, const char *name, char **path) {
    *path = ndp_format("%s/%s", s->folder, name);
    return NDP_MEMORY(*path, "to name the token cache");
}

static ndp_status find(cache_search *s, finding *out) {
    finding f = {.build = 1};
    NDP_TRY(open_corpus(s));
    ndp_hash128 content;
    NDP_TRY(ndp_corpus_key(&s->corpus, s->o, &f.key, &content));
    if (s->o->content)
        *s->o->content = content;
    f.stamp = s->corpus.stamp;
    snprintf(f.name, sizeof f.name, "%016llx%016llx.tokens", (unsigned long long)f.key.high,
             (unsigned long long)f.key.low);
    char *path;
    NDP_TRY(path_of(s, f.name, &path));
    f.build = !cache_is_whole(s->o, path, f.key);
    free(path);
    *out = f;
    return NDP_OK;
}

/* For a leader that cannot write: the cache must already exist. */
static ndp_status find_without_writing(void *user, char name[NDP_CREW_NAME]) {
    cache_search *s = user;
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

/* A rank that fails reports its own error; the others return success and learn of the failure in agree(). */
static ndp_status find_or_build(cache_search *s, const ndp_crew *crew, finding *f) {
    char file[NDP_CREW_PATH], *bytes;
    size_t size;
    ndp_crew_path(crew, file, "found");
    if (crew->rank == 0) {
        NDP_TRY(find(s, f));
        NDP_TRY(ndp_file_write_atomic(file, f, sizeof *f));
    } else {
        if (!ndp_crew_wait(crew, "found", NULL, NULL))
            return NDP_OK;
        NDP_TRY(ndp_file_read_as(NDP_FILE_CONFIG, file, &bytes, &size));
        memcpy(f, bytes, size < sizeof *f ? size : sizeof *f);
        f->name[sizeof f->name - 1] = '\0';
        free(bytes);
    }
    if (!f->build)
        return NDP_OK;
    bool sees = crew->rank == 0 || (open_corpus(s) == NDP_OK && s->corpus.stamp == f->stamp);
    if (sees)
        NDP_TRY(ndp_tables_convert(crew, &s->corpus));
    if (sees && !ndp_crew_stopped(crew))
        NDP_TRY(ndp_windows_find(crew, &s->corpus));
    if (ndp_crew_stopped(crew))
        return NDP_OK;
    char *path;
    NDP_TRY(path_of(s, f->name, &path));
    ndp_status st = ndp_cache_build(s->o, crew, sees ? &s->corpus : NULL, f->key, path);
    free(path);
    return st;
}

static ndp_status agree(const ndp_dataset_options *o, ndp_status mine) {
    return o->team ? o->team->agree(o->team->user, mine) : mine;
}

static ndp_status prepare(cache_search *s, char **path) {
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
    return st == NDP_OK ? path_of(s, f.name, path) : st;
}

ndp_status ndp_dataset_prepare(const ndp_dataset_options *o, char **path) {
    NDP_CHECK(o->n_files > 0, "no data: data.files names no file");
    char *folder = NULL;
    cache_search s = {.o = o};
    ndp_status st = agree(o, ndp_cache_folder(o->cache_dir, &folder));
    if (st == NDP_OK) {
        s.folder = folder;
        st = prepare(&s, path);
    }
    if (s.opened)
        ndp_corpus_close(&s.corpus);
    free(folder);
    return st;
}
