/* Arithmetic in the field of shares, and the hashes that measures are made of. */
#include "placement/share.h"

static uint64_t mix(uint64_t x) { /* splitmix64 (Steele, Lea, Flood 2014) */
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

ndp_dim_key ndp_dim_make(ndp_dim_key of, uint64_t what) { return mix(mix(of) ^ what); }

ndp_share ndp_share_random(ndp_dim_key key) { return mix(key ^ 0x5851f42d4c957f2du) % NDP_SHARE_PRIME; }

ndp_share ndp_share_inverse(ndp_share a) {
    ndp_share r = 1;
    for (uint64_t e = NDP_SHARE_PRIME - 2; e > 0; e >>= 1, a = ndp_share_mul(a, a))
        r = e & 1 ? ndp_share_mul(r, a) : r;
    return r;
}

static ndp_share up_to(ndp_dim_key dim, int64_t total, int64_t end) {
    return end <= 0 ? 0 : end >= total ? 1 : ndp_share_random(ndp_dim_make(dim, (uint64_t)end));
}

ndp_share ndp_range_share(ndp_dim_key dim, int64_t total, int64_t first, int64_t end) {
    return first >= end ? 0 : ndp_share_sub(up_to(dim, total, end), up_to(dim, total, first));
}

ndp_text ndp_share_text(ndp_share s) {
    enum { LARGEST = 64 };
    ndp_text out = {"a part of it"};
    for (int64_t d = 1; d <= LARGEST; d++) {
        ndp_share n = ndp_share_mul(s, ndp_share_of(d));
        if (n > LARGEST)
            continue;
        out.s[0] = 0;
        if (d == 1 && n <= 1)
            ndp_text_add(&out, n ? "complete" : "nothing");
        else
            ndp_text_add(&out, d == 1 ? "%d times all of it" : "%d/%d of it", (int)n, (int)d);
        break;
    }
    return out;
}
