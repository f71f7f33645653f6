/* attention_merge. */
#include "ops/cpu/rows/range_kernel.h"

#include <math.h>

/* o and o2 of one head become one, by their lse a and b; returns that of both. */
static float merge_head(int64_t n, float *o, float a, const float *o2, float b) {
    float high = a > b ? a : b, shift = high == -INFINITY ? 0 : high;
    float ea = expf(a - shift), eb = expf(b - shift), sum = ea + eb, by = sum == 0 ? 0 : 1 / sum;
    float wa = ea * by, wb = eb * by;
    SIMD for (int64_t i = 0; i < n; i++) o[i] = wa * o[i] + wb * o2[i];
    return shift + logf(sum);
}

void NDP_RANGE_KERNEL(attention_merge)(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *o = &c->in[0], *lse = &c->in[1], *o2 = &c->in[2], *lse2 = &c->in[3];
    int64_t d = o->cols / lse->cols;
    for (int64_t t = first; t < last; t++)
        for (int64_t h = 0; h < lse->cols; h++) {
            float a = *(const float *)ndp_at(lse, t, h), b = *(const float *)ndp_at(lse2, t, h);
            *(float *)ndp_at(&c->out[1], t, h) = merge_head(d, ndp_at(o, t, h * d), a, ndp_at(o2, t, h * d), b);
        }
}
