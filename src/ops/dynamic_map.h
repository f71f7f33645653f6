/* The dynamic map of 8-bit optimizers (Dettmers et al. 2021, "8-bit Optimizers via Block-wise Quantization"): 256
 * values in [-1, 1], or in [0, 1] for what is never negative. Seven decades, from 1 down to 1e-7; each lower decade has
 * half as many values, in the middle of equal parts of [0.1, 1] times its power of ten; and 0 and 1. A state is stored
 * in blocks of NDP_CODE_BLOCK elements: codes, which are places in the map, and the block's largest magnitude, by which
 * the values are multiplied. The paper's signed map has no -1.
 *
 * The values are those of bitsandbytes' create_dynamic_map to the last bit: its arithmetic in fp32 is done again here.
 * Kernels fill a map with them when they start, so there is no table that ranks share. */
#ifndef NDP_OPS_DYNAMIC_MAP_H
#define NDP_OPS_DYNAMIC_MAP_H

#include <math.h>
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

/* The largest number whose code is `code`: the middle between its value and the next one, rounded down, since the
 * smaller of two codes that are equally near is taken. The sum of two values is exact in fp64. */
static inline float ndp_dynamic_last(float value, float next) {
    double middle = ((double)value + (double)next) / 2;
    float last = (float)middle;
    return (double)last > middle ? nextafterf(last, -1.0f) : last;
}

typedef struct ndp_dynamic_map {
    float values[NDP_CODES];
    float last[NDP_CODES]; /* ndp_dynamic_last of each code, ascending; that of code 255 is infinity */
} ndp_dynamic_map;

static inline void ndp_dynamic_fill(bool is_signed, ndp_dynamic_map *map) {
    for (int code = 0; code < NDP_CODES; code++)
        map->values[code] = ndp_dynamic_value(is_signed, code);
    for (int code = 0; code < NDP_CODES - 1; code++)
        map->last[code] = ndp_dynamic_last(map->values[code], map->values[code + 1]);
    map->last[NDP_CODES - 1] = INFINITY;
}

/* About the place of x >= 0 among the values that are not negative, of which zero is place 0: x is nearest to the value
 * of the place returned, or to the next one. Above 1 it is the last place but one.
 *
 * In a decade the place is linear in x. From a decade to the one below, the slope grows by 10 / 2, and the two lines
 * meet where the decades do: the places are a concave function of x, which is the least of its seven lines. Where the
 * nearest value changes is at least 0.25 of a place from where the result does, so fp32 is exact enough, with or
 * without fused multiply-adds. `parts`: of the lowest decade. */
static inline int ndp_dynamic_place(float x, float parts) {
    const float slope[] = {1e7f / 9, 2e6f / 9, 4e5f / 9, 8e4f / 9, 16e3f / 9, 32e2f / 9, 64e1f / 9};
    const float base[] = {8.0f / 9, 16.0f / 9, 32.0f / 9, 64.0f / 9, 128.0f / 9, 256.0f / 9, 512.0f / 9};
    float least = 128; /* at x = 1: an eighth line, which also ends infinity */
    for (int d = 0; d < 7; d++) {
        float line = x * slope[d] + base[d];
        least = line < least ? line : least;
    }
    return (int)((least - 1) * parts + 0.5f);
}

/* The code of the value that is nearest to x, the smaller one of two; 0 if x is NaN. `last`: of ndp_dynamic_fill's map.
 * No branch, and one access to a table, so that loops over x are vectorised. */
static inline int ndp_dynamic_nearest(bool is_signed, const float *last, float x) {
    const int zero = is_signed ? NDP_CODES / 2 - 1 : 0;
    const float least = last[0];
    const float y = x > least ? x : least; /* also for NaN */
    int place = ndp_dynamic_place(fabsf(y), is_signed ? 1 : 2);
    int code = zero + (place ^ -(y < 0)); /* below zero: zero - 1 - place. It is that or the next one */
    return code + (y > last[code]);
}

/* Encodes a block of n <= NDP_CODE_BLOCK numbers. Returns its scale, their largest magnitude. */
static inline float ndp_dynamic_encode(bool is_signed, const ndp_dynamic_map *map, const float *x, int n,
                                       uint8_t *codes) {
    float scale = 0;
    for (int i = 0; i < n; i++)
        scale = (x[i] < 0 ? -x[i] : x[i]) > scale ? (x[i] < 0 ? -x[i] : x[i]) : scale;
    for (int i = 0; i < n; i++)
        codes[i] = (uint8_t)ndp_dynamic_nearest(is_signed, map->last, scale > 0 ? x[i] / scale : 0);
    return scale;
}

/* Blocks that `count` elements from `first` of a slice on are in: blocks end at multiples of NDP_CODE_BLOCK. */
static inline int64_t ndp_code_blocks(int64_t first, int64_t count) {
    return count > 0 ? (first + count - 1) / NDP_CODE_BLOCK - first / NDP_CODE_BLOCK + 1 : 0;
}

#endif
