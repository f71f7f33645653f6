/* Inside the data room: the header of a cache file, for who writes and who reads one. */
#ifndef NDP_DATA_CACHE_FILE_H
#define NDP_DATA_CACHE_FILE_H

#include "data/cache.h"
#include "data/files.h"

enum { NDP_CACHE_VERSION = 2 };
#define NDP_CACHE_MAGIC "NDPTOKEN"

typedef struct ndp_cache_header {
    char magic[8];
    uint32_t version, id_bytes;
    ndp_hash128 key;     /* of what it was made from: also its name */
    ndp_hash128 payload; /* of all behind the header */
    uint64_t n_documents, n_tokens;
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

/* The files of a data set: source i is files [source_ends[i - 1], source_ends[i]). */
typedef struct ndp_cache_sources {
    ndp_file_list files;
    ndp_mapped *mapped;   /* [files.n], as they lie on the disk */
    int64_t *source_ends; /* [n_files of the options] */
} ndp_cache_sources;

/* Writes the cache of these sources beside `path` and renames it. */
NDP_API ndp_status ndp_cache_build(const ndp_dataset_options *o, const ndp_cache_sources *sources, ndp_hash128 key,
                                   const char *path);
/* "cannot write the token cache ...": errors of writing know no name; it is added here, with what to do. */
NDP_API ndp_status ndp_cache_fail_writing(const char *path, const char *cause);

#endif
