/* Inside the data room: building a token cache. */
#ifndef NDP_DATA_CACHE_CACHE_BUILD_H
#define NDP_DATA_CACHE_CACHE_BUILD_H

#include "data/cache/corpus.h"
#include "data/cache/crew.h"

/* Builds a cache with the crew. All of its ranks call this; they return when the cache exists or one of them failed.
 * `corpus`: NULL for a rank that does not see the leader's files and leaves the work to the others. The leader's `key`
 * and `path` are those of the cache. Files of the crew's work folder:
 *
 *   claim-P    a rank tokenizes part P
 *   part-P     part P, tokenized (parts.h)
 *   table      the leader has seen all parts: the number of tokens before each, and of all (64 bits each)
 *   tokens     the cache; rank R of the crew copies the ids of parts R, R + size, ... into it, the leader adds the rest
 *   copied-R   rank R has copied its ids
 *   finished   `tokens` was renamed to the cache
 */
ndp_status ndp_cache_build(const ndp_dataset_options *o, const ndp_crew *crew, const ndp_corpus *corpus,
                           ndp_hash128 key, const char *path);

#endif
