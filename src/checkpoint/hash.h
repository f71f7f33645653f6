/* XXH3-128 of a checkpoint's chunks and of its manifest, in the fastest version for this CPU. Internal to the room. */
#ifndef NDP_CHECKPOINT_HASH_H
#define NDP_CHECKPOINT_HASH_H

#include "base/hash128.h"

ndp_hash128 ndp_hash_of(const void *data, size_t n);

/* 32 hexadecimal digits, as `xxh128sum` prints them; returns `out`. */
enum { NDP_HASH_DIGITS = 32 };
char *ndp_hash_text(ndp_hash128 h, char out[NDP_HASH_DIGITS + 1]);
/* False unless `text` starts with 32 digits 0-9 a-f. */
bool ndp_hash_parse(const char *text, ndp_hash128 *out);

/* The same hash in steps, while each block is in the CPU cache. */
typedef struct ndp_hasher {
    _Alignas(64) unsigned char state[1024];
} ndp_hasher;

/* One per instruction set (cpu/hash_impl.h); all give the same hash. */
typedef struct ndp_hash_kernel {
    ndp_hash128 (*of)(const void *data, size_t n);
    void (*begin)(ndp_hasher *h);
    void (*add)(ndp_hasher *h, const void *data, size_t n);
    ndp_hash128 (*end)(const ndp_hasher *h);
} ndp_hash_kernel;
extern const ndp_hash_kernel ndp_hash_generic, ndp_hash_avx512;
/* The best for this CPU (cpu/hash_best_x86.c, hash_best_arm.c). */
const ndp_hash_kernel *ndp_hash_best(void);

#endif
