/* Shares: how much of a sum is in a value, as an element of a field.
 *
 * A summand of a sum over some dimension (columns of a product, rows, micro-batches, keys, ...) has as its share the
 * measure of the indices that it covers. A dimension's measure is additive over disjoint ranges, 1 for all of it, and
 * otherwise random: W(end) - W(first) with W(0) = 0, W(n) = 1, and W in between a hash of the dimension and the index.
 * Sums of values add shares, products multiply them. So a sum that has every contribution once has share 1; with one
 * left out, twice, or of another place it is something else, but for a chance of about 2^-60 (Schwartz-Zippel: shares
 * are polynomials in the hashes; two different ones agree at a random point with that chance).
 *
 * The field: integers modulo the prime 2^61 - 1. */
#ifndef NDP_PLACEMENT_SHARE_H
#define NDP_PLACEMENT_SHARE_H

#include "placement/items.h"

typedef uint64_t ndp_share;

#define NDP_SHARE_PRIME (((uint64_t)1 << 61) - 1)

static inline ndp_share ndp_share_add(ndp_share a, ndp_share b) {
    uint64_t s = a + b;
    return s >= NDP_SHARE_PRIME ? s - NDP_SHARE_PRIME : s;
}
static inline ndp_share ndp_share_sub(ndp_share a, ndp_share b) { return ndp_share_add(a, NDP_SHARE_PRIME - b); }
static inline ndp_share ndp_share_mul(ndp_share a, ndp_share b) {
    unsigned __int128 p = (unsigned __int128)a * b;
    return ndp_share_add((uint64_t)(p & NDP_SHARE_PRIME), (uint64_t)(p >> 61));
}
/* 1 / a, for a other than 0. */
ndp_share ndp_share_inverse(ndp_share a);
/* A whole number. */
static inline ndp_share ndp_share_of(int64_t n) { return (uint64_t)n % NDP_SHARE_PRIME; }

/* A dimension: anything by which sums can be split. Keys of different dimensions are made with ndp_dim_key. */
typedef uint64_t ndp_dim_key;
ndp_dim_key ndp_dim_make(ndp_dim_key of, uint64_t what);

/* The measure of indices [first, end) of `total`; what is outside of [0, total) counts nothing. */
ndp_share ndp_range_share(ndp_dim_key dim, int64_t total, int64_t first, int64_t end);
/* A random element: the weight of one of several things. */
ndp_share ndp_share_random(ndp_dim_key key);

/* "complete", "nothing", "2 times all of it", "1/2 of it", "a part of it" */
ndp_text ndp_share_text(ndp_share s);

#endif
