/* The element loops of the optimizers, by storage type and instruction set. Internal to the room. */
#ifndef NDP_OPTIM_KERNELS_H
#define NDP_OPTIM_KERNELS_H

#include "optim/optim.h"

/* Elements [first, end) of one call. */
typedef void ndp_optim_loop(const ndp_optim_call *c, int64_t first, int64_t end);

typedef struct ndp_optim_kernels {
    ndp_optim_loop *adamw, *sgd;
    /* Sum of squares of elements [first, end); the order of the additions depends on end - first alone. */
    double (*squares)(const void *x, int64_t first, int64_t end);
} ndp_optim_kernels;

extern const ndp_optim_kernels ndp_optim_f32, ndp_optim_f64, ndp_optim_f32_avx512;

/* The fastest loops of this machine for `type`, fp32 or fp64. */
const ndp_optim_kernels *ndp_optim_kernels_for(ndp_dtype type);
/* Threads worth waking for n elements: one when they are few. */
int ndp_optim_threads(int64_t n, int threads);
/* Runs a loop over all elements of the call, one contiguous range a thread. */
void ndp_optim_run(const ndp_optim_call *c, ndp_optim_loop *loop);

#endif
