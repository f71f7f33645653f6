/* The element loops of the optimizers, written once for all types and instruction sets. A file that includes this is
 * compiled for its instruction set and defines REAL (float or double), SQRT, NAME(stem), the function names, and
 * KERNELS, the name of the table of them. */
#include "optim/kernels.h"
#include <math.h>

/* Moments that decay for long, as those of rare words do, would end as denormal numbers and stay there, at a tenth of
 * the speed. What is this small cannot move a weight. */
static inline REAL NAME(flush)(REAL x) { return x < (REAL)1e-34 && x > (REAL)-1e-34 ? 0 : x; }

/* `copied` is a constant at each call, so that no test is left in the loop. */
static inline __attribute__((always_inline)) void NAME(adamw_loop)(const ndp_update *u, int64_t first, int64_t end,
                                                                   bool copied) {
    REAL *restrict w = u->weight, *restrict m = u->state[0], *restrict v = u->state[1];
    const REAL *restrict g = u->grad;
    uint16_t *restrict copy = u->copy;
    const double *k = u->constants;
    const REAL keep = u->decays ? (REAL)k[ADAMW_KEEP] : 1, scale = (REAL)u->grad_scale, eps = (REAL)k[ADAMW_EPS];
    const REAL new1 = (REAL)k[ADAMW_NEW1], old2 = (REAL)k[ADAMW_OLD2], new2 = (REAL)k[ADAMW_NEW2];
    const REAL rate = (REAL)k[ADAMW_RATE], unbias = (REAL)k[ADAMW_UNBIAS];
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

static void NAME(adamw)(const ndp_update *u, int64_t first, int64_t end) {
    if (u->copy)
        NAME(adamw_loop)(u, first, end, true);
    else
        NAME(adamw_loop)(u, first, end, false);
}

/* The momentum buffer starts as zeros, which makes the first step b = g. */
static inline __attribute__((always_inline)) void NAME(sgd_loop)(const ndp_update *u, int64_t first, int64_t end,
                                                                 bool copied, bool with_momentum) {
    REAL *restrict w = u->weight, *restrict b = u->state[0];
    const REAL *restrict g = u->grad;
    uint16_t *restrict copy = u->copy;
    const double *k = u->constants;
    const REAL lr = (REAL)k[SGD_LR], decay = u->decays ? (REAL)k[SGD_DECAY] : 0, scale = (REAL)u->grad_scale;
    const REAL momentum = (REAL)k[SGD_MOMENTUM];
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

static void NAME(sgd)(const ndp_update *u, int64_t first, int64_t end) {
    bool with_momentum = u->constants[SGD_MOMENTUM] != 0;
    if (u->copy && with_momentum)
        NAME(sgd_loop)(u, first, end, true, true);
    else if (u->copy)
        NAME(sgd_loop)(u, first, end, true, false);
    else if (with_momentum)
        NAME(sgd_loop)(u, first, end, false, true);
    else
        NAME(sgd_loop)(u, first, end, false, false);
}

/* The sign of a broken gradient is NaN, not 0. */
static inline __attribute__((always_inline)) void NAME(lion_loop)(const ndp_update *u, int64_t first, int64_t end,
                                                                  bool copied) {
    REAL *restrict w = u->weight, *restrict m = u->state[0];
    const REAL *restrict g = u->grad;
    uint16_t *restrict copy = u->copy;
    const double *k = u->constants;
    const REAL keep = u->decays ? (REAL)k[LION_KEEP] : 1, lr = (REAL)k[LION_LR], scale = (REAL)u->grad_scale;
    const REAL old1 = (REAL)k[LION_OLD1], new1 = (REAL)k[LION_NEW1];
    const REAL old2 = (REAL)k[LION_OLD2], new2 = (REAL)k[LION_NEW2];
#pragma omp simd
    for (int64_t i = first; i < end; i++) {
        REAL gi = g[i] * scale, mi = m[i];
        REAL c = old1 * mi + new1 * gi;
        REAL sign = c > 0 ? 1 : c < 0 ? -1 : c;
        REAL wi = w[i] * keep - lr * sign;
        m[i] = NAME(flush)(old2 * mi + new2 * gi);
        w[i] = wi;
        if (copied)
            copy[i] = ndp_f32_to_bf16((float)wi);
    }
}

static void NAME(lion)(const ndp_update *u, int64_t first, int64_t end) {
    if (u->copy)
        NAME(lion_loop)(u, first, end, true);
    else
        NAME(lion_loop)(u, first, end, false);
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

#define NDP_OPTIMIZER_LOOP(UPPER, name) [NDP_##UPPER] = NAME(name),
const ndp_optim_kernels KERNELS = {.update = {NDP_OPTIMIZERS(NDP_OPTIMIZER_LOOP)}, .squares = NAME(squares)};
#undef NDP_OPTIMIZER_LOOP
