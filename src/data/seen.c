/* A table of hashes with open addressing and linear probing. */
#include "data/seen.h"

#include <stdlib.h>
#include <string.h>

ndp_status ndp_seen_create(int64_t n, ndp_seen *out) {
    int64_t slots = 16;
    while (slots < 2 * n)
        slots *= 2;
    *out = (ndp_seen){calloc((size_t)slots, sizeof *out->slots), slots - 1};
    NDP_CHECK_MEMORY(out->slots, "to find repeated documents (data.unique) among %lld", (long long)n);
    return NDP_OK;
}

void ndp_seen_release(ndp_seen *r) {
    free(r->slots);
    *r = (ndp_seen){0};
}

/* Of where training begins and ends, by place in the document. A hash is a part of the next one. */
static ndp_hash128 hash_trained(const ndp_token_cache *c, int64_t first, int64_t end, ndp_hash128 h) {
    bool last = false;
    for (int64_t at = first; c->trained && at < end; at++) {
        bool trained = ndp_token_cache_trained(c, at);
        if (trained != last)
            h = ndp_hash128_of(&(struct {
                ndp_hash128 before;
                int64_t at;
            }){h, at - first},
                               sizeof h + sizeof at);
        last = trained;
    }
    return h;
}

static ndp_hash128 hash_document(const ndp_token_cache *c, int64_t document) {
    int64_t first = (int64_t)c->offsets[document], end = (int64_t)c->offsets[document + 1], bytes = c->id_bytes;
    ndp_hash128 ids = ndp_hash128_of((const char *)c->ids + first * bytes, (size_t)((end - first) * bytes));
    return hash_trained(c, first, end, ids);
}

bool ndp_seen_add(ndp_seen *r, const ndp_token_cache *c, int64_t document, int64_t n) {
    ndp_hash128 of[2] = {{0}, {0}};
    for (int64_t i = 0; i < n; i++)
        of[i] = hash_document(c, document + i);
    ndp_hash128 h = ndp_hash128_of(of, sizeof of);
    h.low |= h.low == 0; /* 0: a free slot */
    int64_t at = (int64_t)h.high & r->mask;
    for (; r->slots[at].low; at = (at + 1) & r->mask)
        if (ndp_hash128_equal(r->slots[at], h))
            return false;
    r->slots[at] = h;
    return true;
}
