/* XXH3-128, the hash of a checkpoint's chunks and of its manifest. It finds damage, not forgery. Internal to the
 * room. */
#ifndef NDP_CHECKPOINT_HASH_H
#define NDP_CHECKPOINT_HASH_H

#include "base/status.h"

typedef struct ndp_hash {
    uint64_t high, low;
} ndp_hash;

ndp_hash ndp_hash_of(const void *data, size_t n);

static inline bool ndp_hash_equal(ndp_hash a, ndp_hash b) { return a.high == b.high && a.low == b.low; }

/* 32 hexadecimal digits, as `xxh128sum` prints them; returns `out`. */
enum { NDP_HASH_DIGITS = 32 };
char *ndp_hash_text(ndp_hash h, char out[NDP_HASH_DIGITS + 1]);
/* False unless `text` begins with 32 digits 0-9 a-f. */
bool ndp_hash_parse(const char *text, ndp_hash *out);

/* The same hash piece by piece, while the pieces are in the processor's cache. */
typedef struct ndp_hasher {
    _Alignas(64) unsigned char state[1024];
} ndp_hasher;
void ndp_hasher_begin(ndp_hasher *h);
void ndp_hasher_add(ndp_hasher *h, const void *data, size_t n);
ndp_hash ndp_hasher_end(const ndp_hasher *h);

/* One for each instruction set (cpu/hash_impl.h), all with the same bits. */
typedef struct ndp_hash_kernel {
    ndp_hash (*of)(const void *data, size_t n);
    void (*begin)(ndp_hasher *h);
    void (*add)(ndp_hasher *h, const void *data, size_t n);
    ndp_hash (*end)(const ndp_hasher *h);
} ndp_hash_kernel;
extern const ndp_hash_kernel ndp_hash_generic, ndp_hash_avx512;

#endif
