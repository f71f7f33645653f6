/* The head of every source of a data set, as a token cache in memory: what a dry run can know about the data without
 * reading all of it. */
#ifndef NDP_DATA_SAMPLE_H
#define NDP_DATA_SAMPLE_H

#include "data/cache/cache.h"

enum { NDP_SAMPLE_RECORDS = 100, NDP_SAMPLE_BYTES = 1 << 20 };

/* Reads the first NDP_SAMPLE_RECORDS documents of each source, or those in its first NDP_SAMPLE_BYTES (uncompressed) if
 * these are fewer, but at least one; a longer text is cut there. Renders and tokenizes them as ndp_dataset_prepare
 * does, with the same errors. Opens all files; writes nothing. out->head: there is more data. The caller closes the
 * cache. */
NDP_API ndp_status ndp_dataset_sample(const ndp_dataset_options *o, ndp_token_cache *out);

#endif
