#include "base/rng.h"

#include <Random123/philox.h>
#include <math.h>
#include <string.h>
#include <xxhash.h>

uint64_t ndp_rng_stream(const char *name) { return XXH3_64bits(name, strlen(name)); }

void ndp_rng_words(uint64_t seed, uint64_t stream, uint64_t index, uint32_t out[4]) {
    philox4x32_ctr_t counter = {{(uint32_t)index, (uint32_t)(index >> 32), (uint32_t)stream, (uint32_t)(stream >> 32)}};
    philox4x32_key_t key = {{(uint32_t)seed, (uint32_t)(seed >> 32)}};
    philox4x32_ctr_t words = philox4x32(counter, key);
    memcpy(out, words.v, sizeof words.v);
}

static uint64_t word64(uint64_t seed, uint64_t stream, uint64_t index) {
    uint32_t w[4];
    ndp_rng_words(seed, stream, index, w);
    return (uint64_t)w[1] << 32 | w[0];
}

uint64_t ndp_rng_below(uint64_t seed, uint64_t stream, uint64_t index, uint64_t bound) {
    return (uint64_t)((unsigned __int128)word64(seed, stream, index) * bound >> 64);
}

double ndp_rng_uniform(uint64_t seed, uint64_t stream, uint64_t index) {
    return (double)(word64(seed, stream, index) >> 11) * 0x1p-53;
}

/* Two normals of two words. The radius word maps to (0, 1]: its logarithm is finite, and the tail reaches 6.7. */
static void box_muller(uint32_t radius, uint32_t angle, float out[2]) {
    float r = sqrtf(-2.0f * logf((float)radius * 0x1p-32f + 0x1p-33f));
    float s, c;
    sincosf((float)angle * (6.283185307179586f * 0x1p-32f), &s, &c);
    out[0] = r * c;
    out[1] = r * s;
}

void ndp_rng_normal(uint64_t seed, uint64_t stream, uint64_t first, int64_t n, double std, float *out) {
    for (int64_t done = 0; done < n;) {
        uint64_t at = first + (uint64_t)done;
        uint32_t w[4];
        float z[4];
        ndp_rng_words(seed, stream, at / 4, w);
        box_muller(w[0], w[1], z);
        box_muller(w[2], w[3], z + 2);
        for (uint64_t k = at % 4; k < 4 && done < n; k++)
            out[done++] = (float)std * z[k];
    }
}
