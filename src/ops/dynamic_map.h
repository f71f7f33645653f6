/* The dynamic map of 8-bit optimizers (Dettmers et al. 2021, "8-bit Optimizers via Block-wise Quantization"): 256
 * values in [-1, 1], or in [0, 1] for what is never negative. Seven decades, from 1 down to 1e-7; each lower decade has
 * half as many values, in the middle of equal parts of [0.1, 1] times its power of ten; and 0 and 1. A state is stored
 * in blocks of NDP_CODE_BLOCK elements: codes, which are places in the map, and the block's largest magnitude, by which
 * the values are multiplied. The paper's signed map has no -1.
 *
 * The values are those of bitsandbytes' create_dynamic_map to the last bit: its arithmetic in fp32 is done again here.
 * Kernels fill tables with them when they start, so there is no table that ranks share. */
#ifndef NDP_OPS_DYNAMIC_MAP_H
#define NDP_OPS_DYNAMIC_MAP_H

#include <stdbool.h>
#include <stdint.h>

enum { NDP_CODES = 256, NDP_CODE_BLOCK = 256 };

/* Border j of n parts of [0.1, 1], as a fused multiply-add rounds it: from both ends to the middle. */
static inline float ndp_dynamic_border(int n, int j) {
    float part = (1.0f - 0.1f) / (float)n;
    return j < (n + 1) / 2 ? (float)((double)0.1f + (double)part * j) : (float)(1.0 - (double)part * (n - j));
}

/* The value of a code; codes are in the order of their values. */
static inline float ndp_dynamic_value(bool is_signed, int code) {
    const float powers[] = {1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1.0f};
    int zero = is_signed ? NDP_CODES / 2 - 1 : 0, place = code > zero ? code - zero : zero - code;
    int decade = 0, parts = is_signed ? 1 : 2; /* of the lowest decade */
    if (place == 0 || code == NDP_CODES - 1)
        return place == 0 ? 0.0f : 1.0f;
    for (place -= 1; place >= parts; parts *= 2, decade++)
        place -= parts;
    float mean = (ndp_dynamic_border(parts, place) + ndp_dynamic_border(parts, place + 1)) / 2;
    return code > zero ? powers[decade] * mean : -(powers[decade] * mean);
}

static inline void ndp_dynamic_fill(bool is_signed, float values[NDP_CODES]) {
    for (int code = 0; code < NDP_CODES; code++)
        values[code] = ndp_dynamic_value(is_signed, code);
}

/* The last code whose value is not above x; 0 if there is none, or x is NaN. `values`: ndp_dynamic_fill's. */
static inline int ndp_dynamic_below(const float *values, float x) {
    int code = 0;
    for (int step = NDP_CODES / 2; step > 0; step /= 2)
        code += values[code + step] <= x ? step : 0;
    return code;
}

/* The code of the value that is nearest to x, the smaller one of two. Exact: twice x and the sum of two values fit in
 * fp64. */
static inline int ndp_dynamic_nearest(const float *values, float x) {
    int code = ndp_dynamic_below(values, x), next = code + (code < NDP_CODES - 1);
    return code + (2 * (double)x > (double)values[code] + (double)values[next] ? next - code : 0);
}

/* Encodes a block of n <= NDP_CODE_BLOCK numbers. Returns its scale, their largest magnitude. */
static inline float ndp_dynamic_encode(const float *values, const float *x, int n, uint8_t *codes) {
    float scale = 0;
    for (int i = 0; i < n; i++)
        scale = (x[i] < 0 ? -x[i] : x[i]) > scale ? (x[i] < 0 ? -x[i] : x[i]) : scale;
    for (int i = 0; i < n; i++)
        codes[i] = (uint8_t)ndp_dynamic_nearest(values, scale > 0 ? x[i] / scale : 0);
    return scale;
}

/* Blocks that `count` elements from `first` of a slice on are in: blocks end at multiples of NDP_CODE_BLOCK. */
static inline int64_t ndp_code_blocks(int64_t first, int64_t count) {
    return count > 0 ? (first + count - 1) / NDP_CODE_BLOCK - first / NDP_CODE_BLOCK + 1 : 0;
}

#endif
