/* XXH3-128 by the kernel that fits this CPU; all kernels give the same hash. Called while chunks are written
 * (exchange.c) and verified (whole.c), and for manifests. */
#include "checkpoint/hash.h"

#include <inttypes.h>
#include <stdio.h>

ndp_hash128 ndp_hash_of(const void *data, size_t n) { return ndp_hash_best()->of(data, n); }

char *ndp_hash_text(ndp_hash128 h, char out[NDP_HASH_DIGITS + 1]) {
    snprintf(out, NDP_HASH_DIGITS + 1, "%016" PRIx64 "%016" PRIx64, h.high, h.low);
    return out;
}

bool ndp_hash_parse(const char *text, ndp_hash128 *out) {
    uint64_t half[2] = {0};
    for (int i = 0; i < NDP_HASH_DIGITS; i++) {
        char c = text[i];
        bool digit = c >= '0' && c <= '9', letter = c >= 'a' && c <= 'f';
        if (!digit && !letter)
            return false;
        half[i / 16] = half[i / 16] << 4 | (uint64_t)(digit ? c - '0' : c - 'a' + 10);
    }
    *out = (ndp_hash128){.high = half[0], .low = half[1]};
    return true;
}
