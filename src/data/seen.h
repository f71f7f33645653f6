/* Inside the data room: the documents of a token cache that were seen, by a hash of their tokens and of which of these
 * are trained on. Two that differ are taken for the same with a chance of 2^-128 a pair. */
#ifndef NDP_DATA_SEEN_H
#define NDP_DATA_SEEN_H

#include "data/cache/cache_file.h"

typedef struct ndp_seen {
    ndp_hash128 *slots; /* open addressing; low 0: free */
    int64_t mask;       /* slots - 1; their number is a power of two */
} ndp_seen;

/* For at most n documents. NDP_ENOMEM. */
ndp_status ndp_seen_create(int64_t n, ndp_seen *out);
/* Accepts {0}. */
void ndp_seen_release(ndp_seen *r);
/* Adds documents [document, document + n) as one. False: the same ones were added before. Reads all their tokens. */
bool ndp_seen_add(ndp_seen *r, const ndp_token_cache *c, int64_t document, int64_t n);

#endif
