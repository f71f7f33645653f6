/* Vectors of attention and of the delta rule in 4 lanes of any processor, by the compiler's vector types. */
#ifndef NDP_OPS_CPU_CPU_ATTENTION_LANES4_H
#define NDP_OPS_CPU_CPU_ATTENTION_LANES4_H

#define LANES 4
#define ZIP_LOW 0, 4, 1, 5
#define ZIP_HIGH 2, 6, 3, 7
#include "ops/cpu/cpu_attention_vector.h"

static inline vf vec_select(vi mask, vf yes, vf no) { return (vf)((mask & (vi)yes) | (~mask & (vi)no)); }

/* s > m ? s : m, so that NaN scores do not become the maximum. */
static inline vf vec_max(vf s, vf m) { return vec_select(s > m, s, m); }

/* The score where low <= key <= pos, else -inf. */
static inline vf vec_see(vf s, vi low, int32_t key, vi pos) {
    return vec_select((low <= key) & (key <= pos), s, vec_set(-INFINITY));
}

/* 2^x; below 2^-126 it is 0; NaN stays. */
static inline vf vec_exp2(vf x) {
    vf y = vec_select(x < -126.0f, vec_set(-126.0f), vec_select(x > 127.0f, vec_set(127.0f), x));
    vi floor = __builtin_convertvector(y, vi);
    floor += __builtin_convertvector(floor, vf) > y;
    vf power = (vf)((floor + 127) << 23);
    return vec_select(x < -126.0f, vec_set(0.0f), vec_exp2_fraction(y - __builtin_convertvector(floor, vf)) * power);
}

#endif
