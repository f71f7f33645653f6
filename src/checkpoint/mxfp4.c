/* Numbers of MXFP4, read where the transposed matrix has them: neighbours of the result lie a row of codes apart, so
 * the rows of a matrix stay in the cache while its columns are read. */
#include "checkpoint/mxfp4.h"

#include <math.h>

const float ndp_fp4_values[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

void ndp_mxfp4_read(const ndp_mxfp4 *m, int64_t first, int64_t n, float *out) {
    enum { BIAS = 127, NOT_A_NUMBER = 255 };
    int64_t size = m->in * m->out;
    for (int64_t i = 0; i < n; i++) {
        int64_t e = (first + i) / size, at = (first + i) % size, column = at / m->out, row = at % m->out;
        int64_t element = (e * m->out + row) * m->in + column;
        unsigned byte = m->codes[element / 2], scale = m->scales[element / NDP_MXFP4_BLOCK];
        float value = ndp_fp4_values[element % 2 ? byte >> 4 : byte & 15];
        out[i] = scale == NOT_A_NUMBER ? NAN : ldexpf(value, (int)scale - BIAS);
    }
}
