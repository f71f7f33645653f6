/* Counter-based random numbers: Philox 4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", 2011), by
 * Random123. A value is a function of (seed, stream, index) alone, not of ranks or of earlier draws. */
#ifndef NDP_BASE_RNG_H
#define NDP_BASE_RNG_H

#include "base/status.h"

/* A 64-bit stream number for a name ("layers.3.mlp.up_proj.weight", "shuffle"): XXH3. */
uint64_t ndp_rng_stream(const char *name);
/* Four 32-bit words at `index` of (seed, stream). */
void ndp_rng_words(uint64_t seed, uint64_t stream, uint64_t index, uint32_t out[4]);
/* Uniform integer in [0, bound), bound >= 1, with negligible bias (64-bit multiply-shift). */
uint64_t ndp_rng_below(uint64_t seed, uint64_t stream, uint64_t index, uint64_t bound);
/* Uniform in [0, 1), 53 bits. */
double ndp_rng_uniform(uint64_t seed, uint64_t stream, uint64_t index);
/* Elements [first, first + n) of a standard normal stream times `std`, in single precision (Box-Muller: element i uses
 * words of index i / 4). out[i] depends on (seed, stream, first + i) only. */
void ndp_rng_normal(uint64_t seed, uint64_t stream, uint64_t first, int64_t n, double std, float *out);

#endif
