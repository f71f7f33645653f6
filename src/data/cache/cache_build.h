/* Inside the data room: building a token cache. */
#ifndef NDP_DATA_CACHE_CACHE_BUILD_H
#define NDP_DATA_CACHE_CACHE_BUILD_H

#include "data/cache/corpus.h"
#include "data/cache/crew.h"

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

#endif
