/* Philox by counter, so a value needs no state: index and stream are the counter, the seed is the key. Normals use only
 * operations that IEEE 754 rounds the same everywhere. */
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

/* The C library's logf and sincosf differ in the last bit between processors, but replicas on two machines must start
 * equal. So these use only +, *, / and sqrt, which IEEE 754 rounds the same everywhere. */

/* ln u for u in [2^-33, 1], as 2 atanh((m - 1) / (m + 1)) of the mantissa m in [sqrt 1/2, sqrt 2). */
static float log_unit(float u) {
    uint32_t bits;
    memcpy(&bits, &u, sizeof bits);
    uint32_t shifted = bits - 0x3f3504f3; /* sqrt 1/2 */
    int32_t exponent = (int32_t)shifted >> 23;
    bits = (shifted & 0x7fffff) + 0x3f3504f3;
    float m;
    memcpy(&m, &bits, sizeof m);
    float s = (m - 1) / (m + 1), t = s * s;
    float series = 2 * s * (1 + t * (1.0f / 3 + t * (1.0f / 5 + t * (1.0f / 7 + t * (1.0f / 9)))));
    return (float)exponent * 0.693147181f + series;
}

/* Cosine and sine of 2 pi angle / 2^32: Taylor series in [-pi/4, pi/4] around the nearest quarter turn. */
static void cos_sin(uint32_t angle, float *c, float *s) {
    uint32_t quarter = (angle + (1u << 29)) >> 30;
    float x = (float)(int32_t)(angle - (quarter << 30)) * (float)(6.283185307179586 * 0x1p-32), t = x * x;
    float sine = x * (1 + t * (-1.0f / 6 + t * (1.0f / 120 + t * (-1.0f / 5040 + t * (1.0f / 362880)))));
    float cosine = 1 + t * (-1.0f / 2 + t * (1.0f / 24 + t * (-1.0f / 720 + t * (1.0f / 40320))));
    float along = quarter & 1 ? sine : cosine, across = quarter & 1 ? cosine : sine;
    *c = (quarter + 1) & 2 ? -along : along;
    *s = quarter & 2 ? -across : across;
}

/* Two normals from two words. The radius word maps to (0, 1], so its logarithm is finite; the tail reaches 6.7. */
static void box_muller(uint32_t radius, uint32_t angle, float out[2]) {
    float r = sqrtf(-2 * log_unit((float)radius * 0x1p-32f + 0x1p-33f)), c, s;
    cos_sin(angle, &c, &s);
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
