/* XXH3-128, by the library xxHash. */
#include "base/hash128.h"

#include <xxhash.h>

ndp_hash128 ndp_hash128_of(const void *data, size_t n) {
    XXH128_hash_t h = XXH3_128bits(data, n);
    return (ndp_hash128){h.low64, h.high64};
}
