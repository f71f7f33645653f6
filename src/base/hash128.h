/* XXH3-128: identifies contents by their bytes. It detects damage and accidents, not forgery. */
#ifndef NDP_BASE_HASH128_H
#define NDP_BASE_HASH128_H

#include "base/status.h"

typedef struct ndp_hash128 {
    uint64_t low, high;
} ndp_hash128;

ndp_hash128 ndp_hash128_of(const void *data, size_t n);

static inline bool ndp_hash128_equal(ndp_hash128 a, ndp_hash128 b) { return a.high == b.high && a.low == b.low; }

#endif
