/* Tokens on disk: files are tokenized once, by several ranks and threads, into a cache that is keyed by content, and
 * mapped from then on. Ranks and threads share files at document boundaries; how many there are changes nothing in the
 * cache. It is written under a temporary name, synced and renamed, so that several runs may prepare the same one at the
 * same time. cache_file.h has the format, cache_build.h the building. */
#ifndef NDP_DATA_CACHE_CACHE_H
#define NDP_DATA_CACHE_CACHE_H

#include "data/cache/cache_file.h"
#include "data/cache/dataset_options.h"

/* The folder for caches, created if missing: `cache_dir`, or the user's. The caller frees the name. */
NDP_API ndp_status ndp_cache_folder(const char *cache_dir, char **out);

/* Finds the cache of these files under this tokenizer and format, checks all of it, and builds it if it is missing or
 * damaged. *path is its name; the caller frees it. A text is tokenized with the tokenizer's special tokens (a BOS,
 * where the model has one); a conversation is tokenized as its chat template renders it (encode.h).
 *
 * Collective over the team. Ranks that see the same cache folder search and build together (crew.h): all ranks build
 * one cache if the nodes share that folder; otherwise each node's ranks build their own. The cache's name is the same,
 * since it depends on contents alone. A rank that does not see the same files takes no part in the work. */
NDP_API ndp_status ndp_dataset_prepare(const ndp_dataset_options *o, char **path);

#endif
