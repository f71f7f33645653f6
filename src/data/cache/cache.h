/* Tokens on disk: files are tokenized once, by several ranks and threads, into a cache that is keyed by content, and
 * mapped from then on. Ranks and threads share files at document boundaries; how many there are changes nothing in the
 * cache. It is written under a temporary name, synced and renamed, so that several runs may prepare the same one at the
 * same time. cache_file.h has the format, cache_build.h the building. */
#ifndef NDP_DATA_CACHE_CACHE_H
#define NDP_DATA_CACHE_CACHE_H

#include "data/cache/cache_file.h"
#include "data/cache/dataset_options.h"

/* Finds the cache of these files under this tokenizer and format, checks all of it, and builds it where it is missing
 * or damaged. *path names it; the caller frees. A text is what the tokenizer gives with its special tokens added: for a
 * model with a BOS that, then the text; a conversation is what its chat template gives (encode.h).
 *
 * Collective over the team. Ranks that see the same cache folder look and build together (crew.h): where the nodes
 * share that folder, all ranks build one cache; where they do not, each node's ranks build one for themselves. The name
 * is the same, being made of contents alone. A rank that does not see the files as the others do takes no part in the
 * work. */
NDP_API ndp_status ndp_dataset_prepare(const ndp_dataset_options *o, char **path);

#endif
