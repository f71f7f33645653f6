/* Matrices of fp8, E4M3, with a scale in fp32 for each block of 128 x 128 elements, as published DeepSeek-V3 folders
 * have them: NAME [rows, cols], NAME_scale_inv [rows / 128, cols / 128], rounded up. */
#ifndef NDP_CHECKPOINT_FP8_H
#define NDP_CHECKPOINT_FP8_H

#include "base/status.h"

enum { NDP_FP8_BLOCK = 128 };

static inline int64_t ndp_fp8_blocks(int64_t n) { return (n + NDP_FP8_BLOCK - 1) / NDP_FP8_BLOCK; }

typedef struct ndp_fp8 {
    const unsigned char *codes, *scales;
    int64_t rows, cols;
} ndp_fp8;

/* Of a code of E4M3; NaN for those that are none. */
float ndp_fp8_value(unsigned code);
/* Elements [first, first + n), times their scales, rounded to bf16. */
void ndp_fp8_read(const ndp_fp8 *m, int64_t first, int64_t n, float *out);

#endif
