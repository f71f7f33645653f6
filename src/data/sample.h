/* The head of every source of a data set as a token cache in memory: what can be known of the data before a run without
 * reading all of them. */
#ifndef NDP_DATA_SAMPLE_H
#define NDP_DATA_SAMPLE_H

#include "data/cache/cache.h"

enum { NDP_SAMPLE_RECORDS = 100, NDP_SAMPLE_BYTES = 1 << 20 };

/* Reads the first NDP_SAMPLE_RECORDS documents of each source, or as many as lie in its first NDP_SAMPLE_BYTES
 * (uncompressed), whichever are fewer, but at least one; a longer text ends there. Renders and tokenizes them as
 * ndp_dataset_prepare does, with its errors. All files are opened; nothing is written. out->head: there is more. The
 * caller closes the cache. */
NDP_API ndp_status ndp_dataset_sample(const ndp_dataset_options *o, ndp_token_cache *out);

#endif
