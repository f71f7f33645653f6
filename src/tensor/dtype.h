/* Storage types. Kernels compute in fp32 (or fp64 on `ref`), whatever the storage type. */
#ifndef NDP_TENSOR_DTYPE_H
#define NDP_TENSOR_DTYPE_H

#include "base/status.h"
#include <string.h>

typedef enum ndp_dtype { NDP_F32, NDP_BF16, NDP_F16, NDP_F64, NDP_I32, NDP_U16, NDP_U8, NDP_I64, NDP_DTYPES } ndp_dtype;

size_t ndp_dtype_size(ndp_dtype t);
/* "fp32", "bf16", ...: the name that users write. */
const char *ndp_dtype_name(ndp_dtype t);

/* Sums of many terms (statistics of rows, gradients of weights, sums over ranks) are kept wider than bf16. */
static inline ndp_dtype ndp_wide(ndp_dtype t) { return t == NDP_F64 ? NDP_F64 : NDP_F32; }

static inline float ndp_bf16_to_f32(uint16_t h) {
    uint32_t bits = (uint32_t)h << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

/* Round to nearest even; NaN stays NaN. */
static inline uint16_t ndp_f32_to_bf16(float f) {
    uint32_t bits;
    memcpy(&bits, &f, 4);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((bits >> 16) | 0x40u);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/* Converts n elements between storage types (any pair of fp32, bf16, fp16, fp64). Buffers do not overlap, or are the
 * same with equal types. */
void ndp_convert(const void *from, ndp_dtype from_type, void *to, ndp_dtype to_type, int64_t n);
/* The same for elements that are `stride` apart. */
void ndp_convert_apart(const void *from, ndp_dtype from_type, int64_t from_stride, void *to, ndp_dtype to_type,
                       int64_t to_stride, int64_t n);

#endif
