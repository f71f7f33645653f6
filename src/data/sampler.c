#include "data/sampler.h"

#include "base/rng.h"

/* A permutation of [0, n): a Feistel network over the next even number of bits, with Philox as its round function,
 * walked along its cycle until it is below n (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002). The
 * network covers less than 4n, so that fewer than four steps are expected. */
enum { ROUNDS = 6 };

static uint64_t feistel(uint64_t seed, uint64_t stream, int half, uint64_t x) {
    uint64_t mask = (1ull << half) - 1, left = x >> half, right = x & mask;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint32_t words[4];
        ndp_rng_words(seed, stream, round << 32 | right, words);
        uint64_t swapped = left ^ (words[0] & mask);
        left = right;
        right = swapped;
    }
    return left << half | right;
}

int64_t ndp_sampler_row(const ndp_sampler *s, int64_t index) {
    uint64_t rows = (uint64_t)s->rows, epoch = (uint64_t)index / rows, x = (uint64_t)index % rows;
    if (!s->shuffle || rows == 1)
        return (int64_t)x;
    int half = 1;
    while (half < 32 && 1ull << 2 * half < rows)
        half++;
    uint64_t stream = ndp_rng_stream("data.order") + epoch;
    do
        x = feistel(s->seed, stream, half, x);
    while (x >= rows);
    return (int64_t)x;
}
