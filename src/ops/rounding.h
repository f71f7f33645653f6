/* Numbers of the update in 16 bits: fp32 weights in two parts, and rounding at random. The same functions run on the
 * host and on GPUs.
 *
 * An fp32 weight w is kept as `high`, the bf16 number nearest to it, which is what ranks gather and ops read, and
 * `rest`, a signed integer: the bits of w are those of high followed by 16 zeros, plus rest. Of two bf16 numbers that
 * are equally near, high is the one of larger magnitude. Then rest is in [-0x8000, 0x7fff], and no bit is lost; with
 * ties to even it would be in [-0x8000, 0x8000], one value too many for 16 bits. NaN stays NaN.
 *
 * What is rounded at random to one of its two neighbours in bf16, to each with the probability of its nearness, is so
 * in the mean: steps below half an ulp add up. Which one is a function of numbers that no layout changes, by Philox
 * 4x32-10 (Salmon et al., 2011; Random123): counter {row, column, tensor, update}, key {seed, NDP_ROUNDING_KEY}. */
#ifndef NDP_OPS_ROUNDING_H
#define NDP_OPS_ROUNDING_H

#include <Random123/philox.h>
#include <stdint.h>
#include <string.h>

#define NDP_ROUNDING_KEY 0xBB67AE85u

static inline R123_CUDA_DEVICE uint32_t ndp_float_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return bits;
}

static inline R123_CUDA_DEVICE float ndp_bits_float(uint32_t bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

static inline R123_CUDA_DEVICE uint16_t ndp_split_high(float x) {
    uint32_t bits = ndp_float_bits(x);
    uint32_t nan = (bits & 0x7fffffffu) > 0x7f800000u;
    return (uint16_t)(nan ? (bits >> 16) | 0x40u : (bits + 0x8000u) >> 16);
}

/* For x itself and for its `high`. */
static inline R123_CUDA_DEVICE uint16_t ndp_split_rest(float x, uint16_t high) {
    return (uint16_t)(ndp_float_bits(x) - ((uint32_t)high << 16));
}

static inline R123_CUDA_DEVICE float ndp_split_join(uint16_t high, uint16_t rest) {
    return ndp_bits_float(((uint32_t)high << 16) + (uint32_t)(int32_t)(int16_t)rest);
}

/* Rounds to bf16 by the lower 16 bits of `word`. What is a bf16 number stays so; infinity and NaN too. */
static inline R123_CUDA_DEVICE uint16_t ndp_round_random(float x, uint32_t word) {
    uint32_t bits = ndp_float_bits(x), special = (bits & 0x7f800000u) == 0x7f800000u;
    uint32_t nan = special && (bits & 0x7fffffu);
    return (uint16_t)(((bits + (special ? 0 : word & 0xffffu)) >> 16) | (nan ? 0x40u : 0));
}

/* Where an element of a slice is in its tensor: element `at` of the segment, [rows, cols] here, of which members are
 * `pitch` rows apart in the tensor; `row`, `col`: the place of element 0. */
typedef struct ndp_rounding {
    uint32_t seed, update, tensor;
    uint32_t rows, cols, pitch, row, col;
    int64_t at; /* of the piece's first element */
} ndp_rounding;

/* The words of a number: which of them each part of an update takes. */
enum { NDP_ROUNDING_STATE, /* the first of the states */ NDP_ROUNDING_WEIGHT = 2, NDP_ROUNDING_GRAD };

/* The words of an element at a place in its tensor, below 2^32 each. */
static inline R123_CUDA_DEVICE philox4x32_ctr_t ndp_rounding_at(uint32_t seed, uint32_t update, uint32_t tensor,
                                                                uint32_t row, uint32_t col) {
    philox4x32_ctr_t counter = {{row, col, tensor, update}};
    philox4x32_key_t key = {{seed, NDP_ROUNDING_KEY}};
    return philox4x32_R(10, counter, key);
}

/* The words of element i of the piece. */
static inline R123_CUDA_DEVICE philox4x32_ctr_t ndp_rounding_words(const ndp_rounding *r, int64_t i) {
    uint64_t at = (uint64_t)(r->at + i);
    uint32_t row, col;
    if (at >> 32) { /* rare: spares GPUs the long division */
        row = (uint32_t)(at / r->cols), col = (uint32_t)(at % r->cols);
    } else {
        row = (uint32_t)at / r->cols, col = (uint32_t)at % r->cols;
    }
    row += r->row + row / r->rows * (r->pitch - r->rows);
    return ndp_rounding_at(r->seed, r->update, r->tensor, row, r->col + col);
}

#endif
