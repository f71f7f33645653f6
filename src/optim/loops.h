/* The element loops of the optimizers, written once for all types and instruction sets. A file that includes this is
 * compiled for its instruction set and defines REAL (float or double), SQRT, and NAME(stem), the function names. */
#include "optim/kernels.h"
#include <math.h>

/* Moments that decay for long, as those of rare words do, would end as denormal numbers and stay there, at a tenth of
 * the speed. What is this small cannot move a weight. */
static inline REAL NAME(flush)(REAL x) { return x < (REAL)1e-34 && x > (REAL)-1e-34 ? 0 : x; }

/* `copied` is a constant at each call, so that no test is left in the loop. */
static inline __attribute__((always_inline)) void NAME(adamw_loop)(const ndp_optim_call *c, int64_t first, int64_t end,
                                                                   bool copied) {
    REAL *restrict w = c->weight, *restrict m = c->state[0], *restrict v = c->state[1];
    const REAL *restrict g = c->grad;
    uint16_t *restrict copy = c->copy;
    const REAL keep = (REAL)(1 - c->lr * c->weight_decay), scale = (REAL)c->grad_scale, eps = (REAL)c->eps;
    const REAL new1 = (REAL)(1 - c->beta1), old2 = (REAL)c->beta2, new2 = (REAL)(1 - c->beta2);
    const REAL rate = (REAL)(c->lr / (1 - pow(c->beta1, (double)c->step)));
    const REAL unbias = (REAL)(1 / sqrt(1 - pow(c->beta2, (double)c->step)));
#pragma omp simd
    for (int64_t i = first; i < end; i++) {
        REAL gi = g[i] * scale;
        REAL mi = NAME(flush)(m[i] + new1 * (gi - m[i]));
        REAL vi = NAME(flush)(old2 * v[i] + new2 * (gi * gi));
        REAL wi = w[i] * keep - rate * (mi / (SQRT(vi) * unbias + eps));
        m[i] = mi;
        v[i] = vi;
        w[i] = wi;
        if (copied)
            copy[i] = ndp_f32_to_bf16((float)wi);
    }
}

static void NAME(adamw)(const ndp_optim_call *c, int64_t first, int64_t end) {
    if (c->copy)
        NAME(adamw_loop)(c, first, end, true);
    else
        NAME(adamw_loop)(c, first, end, false);
}

/* The momentum buffer starts as zeros, which makes the first step b = g. */
static inline __attribute__((always_inline)) void NAME(sgd_loop)(const ndp_optim_call *c, int64_t first, int64_t end,
                                                                 bool copied, bool with_momentum) {
    REAL *restrict w = c->weight, *restrict b = c->state[0];
    const REAL *restrict g = c->grad;
    uint16_t *restrict copy = c->copy;
    const REAL lr = (REAL)c->lr, decay = (REAL)c->weight_decay, scale = (REAL)c->grad_scale;
    const REAL momentum = (REAL)c->momentum;
#pragma omp simd
    for (int64_t i = first; i < end; i++) {
        REAL d = g[i] * scale + decay * w[i];
        if (with_momentum)
            b[i] = d = NAME(flush)(momentum * b[i] + d);
        REAL wi = w[i] - lr * d;
        w[i] = wi;
        if (copied)
            copy[i] = ndp_f32_to_bf16((float)wi);
    }
}

static void NAME(sgd)(const ndp_optim_call *c, int64_t first, int64_t end) {
    bool with_momentum = c->momentum != 0;
    if (c->copy && with_momentum)
        NAME(sgd_loop)(c, first, end, true, true);
    else if (c->copy)
        NAME(sgd_loop)(c, first, end, true, false);
    else if (with_momentum)
        NAME(sgd_loop)(c, first, end, false, true);
    else
        NAME(sgd_loop)(c, first, end, false, false);
}

/* Fixed lanes, not a reduction clause: the order must not be the compiler's choice. The square of a float is exact in
 * fp64, so that fused and separate multiply-adds agree for fp32. */
static double NAME(squares)(const void *x, int64_t first, int64_t end) {
    enum { LANES = 16 };
    const REAL *p = x;
    double lane[LANES] = {0}, sum = 0;
    int64_t i = first;
    for (; i + LANES <= end; i += LANES) {
#pragma omp simd
        for (int j = 0; j < LANES; j++)
            lane[j] += (double)p[i + j] * (double)p[i + j];
    }
    for (int j = 0; i < end; i++, j++)
        lane[j] += (double)p[i] * (double)p[i];
    for (int j = 0; j < LANES; j++)
        sum += lane[j];
    return sum;
}
