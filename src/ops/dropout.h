/* Which elements the op dropout drops: a function of numbers that no layout changes, by Philox 4x32-10 (Salmon et al.,
 * "Parallel Random Numbers: As Easy as 1, 2, 3", 2011; Random123). Columns of the model's value come in groups of four,
 * one number of the generator: counter {group, tag, unit, 0}, key {key of the row, NDP_DROPOUT_KEY}. Column 4 g + k is
 * dropped if word k of that of group g is below drop * 2^32.
 *
 * The same functions run on the host and on GPUs. */
#ifndef NDP_OPS_DROPOUT_H
#define NDP_OPS_DROPOUT_H

#include <Random123/philox.h>
#include <math.h>
#include <stdint.h>

enum { NDP_DROPOUT_GROUP = 4 };
#define NDP_DROPOUT_KEY 0x9E3779B9u

/* The words of columns 4 group .. 4 group + 3. */
static inline R123_CUDA_DEVICE philox4x32_ctr_t ndp_dropout_words(uint32_t group, uint32_t tag, uint32_t unit,
                                                                  uint32_t key) {
    philox4x32_ctr_t counter = {{group, tag, unit, 0}};
    philox4x32_key_t keys = {{key, NDP_DROPOUT_KEY}};
    return philox4x32_R(10, counter, keys);
}

/* Words below it are dropped. `drop` is below 1 - 2^-32. */
static inline uint32_t ndp_dropout_bound(double drop) { return (uint32_t)ceil(drop * 0x1p32); }

#endif
