/* XXH3-128 compiled for one instruction set: included by hash_generic.c and hash_avx512.c, which name the table. The
 * library's own build has SSE2 alone, at a third of the speed of AVX-512: too slow for 3% of a save. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "checkpoint/hash.h"

static XXH3_state_t *state_of(const ndp_hasher *h) {
    _Static_assert(sizeof(XXH3_state_t) <= sizeof h->state, "the state fits a hasher");
    return (XXH3_state_t *)(uintptr_t)h->state;
}

static ndp_hash128 as_hash(XXH128_hash_t h) { return (ndp_hash128){h.low64, h.high64}; }

static ndp_hash128 hash_of(const void *data, size_t n) { return as_hash(XXH3_128bits(data, n)); }
static void hash_begin(ndp_hasher *h) {
    XXH3_INITSTATE(state_of(h));
    (void)XXH3_128bits_reset(state_of(h));
}
static void hash_add(ndp_hasher *h, const void *data, size_t n) { (void)XXH3_128bits_update(state_of(h), data, n); }
static ndp_hash128 hash_end(const ndp_hasher *h) { return as_hash(XXH3_128bits_digest(state_of(h))); }

const ndp_hash_kernel NDP_HASH_TABLE = {hash_of, hash_begin, hash_add, hash_end};
