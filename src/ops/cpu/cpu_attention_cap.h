/* Caps of attention's scores: x becomes c tanh(x / c). Part of cpu_attention_kernel.h and cpu_attention_bf16.h. */
#ifndef NDP_OPS_CPU_CPU_ATTENTION_CAP_H
#define NDP_OPS_CPU_CPU_ATTENTION_CAP_H

#include "ops/cpu/cpu_attention_block.h"
#include "ops/cpu/cpu_vector.h"

/* tanh(x): see ndp_vtanhf. */
INLINE vf vec_tanh(vf x) {
    vf size = (vf)((vi)x & INT32_MAX), z = x * x;
    vf far = 1 - 2 / (1 + vec_exp2(size * (2 * (float)M_LOG2E))), near = x + x * z * NDP_TANH_SERIES(z);
    vi sign = (vi)x & INT32_MIN, is_near = size < NDP_TANH_SMALL;
    return (vf)((is_near & (vi)near) | (~is_near & ((vi)far | sign)));
}

/* Scores [keys][cols] in units of `unit`: the cap is a number of the scores themselves. */
static void cap_scores(int64_t keys, int64_t cols, int64_t ld, float cap, float unit, float *s) {
    const float by = unit / cap, to = cap / unit;
    for (int64_t k = 0; k < keys; k++)
        for (int64_t j = 0; j < cols; j += LANES)
            vec_store(s + k * ld + j, to * vec_tanh(vec_load(s + k * ld + j) * by));
}

/* The slope at capped scores x, 1 - (x / c)^2; hidden ones (-inf) have none. */
INLINE vf cap_slope(float cap, vf x) {
    vf part = vec_max(x, vec_set(-cap)) * (1 / cap);
    return 1 - part * part;
}

#endif
