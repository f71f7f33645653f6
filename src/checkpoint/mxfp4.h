/* MXFP4 (OCP Microscaling Formats 1.0): blocks of 32 numbers of 4 bits, FP4 E2M1, with one scale, E8M0, a power of 2.
 * Published gpt-oss folders have the stacks of their experts so: NAME_blocks u8 [E, out, in / 32, 16], the first number
 * of a byte in its low bits, and NAME_scales u8 [E, out, in / 32], for NAME [E, in, out]. */
#ifndef NDP_CHECKPOINT_MXFP4_H
#define NDP_CHECKPOINT_MXFP4_H

#include "base/status.h"

extern const float ndp_fp4_values[16]; /* of codes of E2M1 */

enum { NDP_MXFP4_BLOCK = 32 };

typedef struct ndp_mxfp4 {
    const unsigned char *codes, *scales;
    int64_t in, out; /* of each matrix */
} ndp_mxfp4;

/* Elements [first, first + n) of the stack [E, in, out], as fp32, which holds them all but the largest: a scale of 255
 * is NaN. */
void ndp_mxfp4_read(const ndp_mxfp4 *m, int64_t first, int64_t n, float *out);

#endif
