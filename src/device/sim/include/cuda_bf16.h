/* bf16 as CUDA has it, for `sim`. */
#ifndef NDP_SIM_CUDA_BF16_H
#define NDP_SIM_CUDA_BF16_H

#include <cstdint>
#include <cstring>

struct __nv_bfloat16 {
    uint16_t bits;
};
struct alignas(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;
};

static inline float __bfloat162float(__nv_bfloat16 h) {
    uint32_t bits = (uint32_t)h.bits << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}
/* To the nearest, ties to even; NaN stays NaN. */
static inline __nv_bfloat16 __float2bfloat16_rn(float f) {
    uint32_t bits;
    memcpy(&bits, &f, 4);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return {(uint16_t)((bits >> 16) | 0x40u)};
    return {(uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}
static inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
    return {__float2bfloat16_rn(x), __float2bfloat16_rn(y)};
}

#endif
