/* Numbers of fp8 with a scale for each block, read where the matrix has them. */
#include "checkpoint/fp8.h"

#include "tensor/dtype.h"
#include <math.h>
#include <string.h>

/* E4M3 has no infinities: the largest code is NaN. */
float ndp_fp8_value(unsigned code) {
    enum { BIAS = 7, NOT_A_NUMBER = 0x7f };
    int exponent = code >> 3 & 15, mantissa = code & 7;
    float size =
        exponent == 0 ? ldexpf((float)mantissa, 1 - BIAS - 3) : ldexpf((float)(8 + mantissa), exponent - BIAS - 3);
    return (code & NOT_A_NUMBER) == NOT_A_NUMBER ? NAN : code & 0x80 ? -size : size;
}

void ndp_fp8_read(const ndp_fp8 *m, int64_t first, int64_t n, float *out) {
    int64_t across = ndp_fp8_blocks(m->cols);
    for (int64_t i = 0; i < n; i++) {
        int64_t row = (first + i) / m->cols, col = (first + i) % m->cols;
        float scale;
        memcpy(&scale, m->scales + sizeof scale * (size_t)(row / NDP_FP8_BLOCK * across + col / NDP_FP8_BLOCK),
               sizeof scale);
        out[i] = ndp_bf16_to_f32(ndp_f32_to_bf16(scale * ndp_fp8_value(m->codes[first + i])));
    }
}
