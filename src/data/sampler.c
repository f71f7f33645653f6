/* The order of samples: each epoch is a permutation that is computed for one index at a time, so a run resumes
 * anywhere without state. Called by train/. */
#include "data/sampler.h"

#include "base/rng.h"

/* A permutation of [0, n): a Feistel network over the next even number of bits, with Philox as its round function. If a
 * result is not below n, it is permuted again (cycle walking; Black and Rogaway, "Ciphers with Arbitrary Finite
 * Domains", 2002). The network covers less than 4n values, so fewer than four steps are expected. */
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

/* The image of x < n under the stream's permutation. */
static uint64_t permute(uint64_t seed, uint64_t stream, uint64_t n, uint64_t x) {
    int half = 1;
    while (half < 32 && 1ull << 2 * half < n)
        half++;
    do
        x = feistel(seed, stream, half, x);
    while (x >= n);
    return x;
}

int64_t ndp_mix_taken(int64_t rows, double weight) {
    if (rows == 0 || weight == 0)
        return 0;
    int64_t taken = (int64_t)(weight * (double)rows + 0.5);
    return taken > 0 ? taken : 1;
}

/* Group k of those that an epoch takes, source after source. Each pass over a source has an order of its own;
 * unshuffled, an epoch continues where the previous one stopped. */
static int64_t mixed_group(const ndp_sampler *s, uint64_t group, uint64_t epoch, uint64_t k) {
    enum { PASSES = 20 }; /* bits for the number of a pass */
    int i = 0;
    while (k >= (uint64_t)s->sources[i].taken / group)
        k -= (uint64_t)s->sources[i++].taken / group;
    const ndp_mix_source *p = &s->sources[i];
    uint64_t rows = (uint64_t)p->rows / group, taken = (uint64_t)p->taken / group, pass = k / rows, x = k % rows;
    int64_t first = p->first / (int64_t)group;
    if (!s->shuffle)
        return first + (int64_t)((k + epoch % rows * (taken % rows)) % rows);
    uint64_t stream = ndp_rng_stream("data.mix") + ((epoch * (uint64_t)s->n_sources + (uint64_t)i) << PASSES) + pass;
    return first + (int64_t)(rows == 1 ? 0 : permute(s->seed, stream, rows, x));
}

int64_t ndp_sampler_row(const ndp_sampler *s, int64_t index) {
    uint64_t group = s->group > 1 ? (uint64_t)s->group : 1, place = (uint64_t)index % group;
    uint64_t groups = (uint64_t)s->rows / group, k = (uint64_t)index / group, epoch = k / groups, x = k % groups;
    if (s->shuffle && groups > 1)
        x = permute(s->seed, ndp_rng_stream("data.order") + epoch, groups, x);
    return (s->sources ? mixed_group(s, group, epoch, x) : (int64_t)x) * (int64_t)group + (int64_t)place;
}
