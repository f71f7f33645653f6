/* Inside the data room: cache files, for who writes and who reads one. */
#ifndef NDP_DATA_CACHE_CACHE_FILE_H
#define NDP_DATA_CACHE_CACHE_FILE_H

#include "data/corpus/bin.h"
#include "data/cache/corpus.h"
#include "data/cache/crew.h"

enum { NDP_CACHE_VERSION = 4 };
#define NDP_CACHE_MAGIC "NDPTOKEN"

typedef struct ndp_cache_header {
    char magic[8];
    uint32_t version, id_bytes;
    ndp_hash128 key;     /* of what it was made from: also its name */
    ndp_hash128 payload; /* ndp_hash_blocks of all behind the header */
    uint64_t n_documents, n_tokens, n_texts;
    uint32_t n_sources, partly; /* partly: there are bits of learned tokens */
    int64_t largest_id;
    uint64_t hash; /* of the header up to here */
} ndp_cache_header;

uint64_t ndp_cache_header_hash(const ndp_cache_header *h);
/* With their padding. */
static inline uint64_t ndp_cache_ids_bytes(const ndp_cache_header *h) {
    return (h->n_tokens * h->id_bytes + 7) / 8 * 8;
}
static inline uint64_t ndp_cache_bits_bytes(const ndp_cache_header *h) {
    return h->partly ? (h->n_tokens + 63) / 64 * 8 : 0;
}

/* The same as ndp_token_cache_open of bytes that the caller has; they become the cache's, when they are one. */
ndp_status ndp_token_cache_read(const char *path, const ndp_mapped *file, ndp_token_cache *out);

int ndp_dataset_threads(const ndp_dataset_options *o);
/* 2 where all ids that there can be fit, else 4. */
int ndp_cache_id_bytes(const ndp_dataset_options *o);
/* GPT-2's token stands between documents also where nobody says so. */
ndp_bin_rule ndp_cache_bin_rule(const ndp_dataset_options *o);

/* Builds a cache with the crew; all of its ranks call this, and return when it is there or one of them failed.
 * `corpus`: NULL for a rank that does not see it as the leader does, and leaves the work to the others. The leader's
 * `key` and `path` are those of the cache. Files of the crew's work folder:
 *
 *   claim-P    a rank tokenizes part P
 *   part-P     it has done so (parts.h)
 *   table      the leader has seen all parts: their first tokens, and the number of all (64 bits each)
 *   tokens     the cache, into which rank R of the crew copies the ids of parts R, R + size, ..., the leader the rest
 *   copied-R   rank R has done so
 *   finished   `tokens` has become the cache
 */
ndp_status ndp_cache_build(const ndp_dataset_options *o, const ndp_crew *crew, const ndp_corpus *corpus,
                           ndp_hash128 key, const char *path);
/* "cannot write the token cache ...": errors of writing know no name; it is added here, with what to do. */
NDP_API ndp_status ndp_cache_fail_writing(const char *path, const char *cause);

#endif
