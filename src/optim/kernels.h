/* The element loops of the optimizers, by storage type and instruction set. Internal to the room. */
#ifndef NDP_OPTIM_KERNELS_H
#define NDP_OPTIM_KERNELS_H

#include "optim/optim.h"

/* What an optimizer's `constants` writes and its loops read, by place. */
enum { ADAMW_KEEP, ADAMW_RATE, ADAMW_UNBIAS, ADAMW_NEW1, ADAMW_OLD2, ADAMW_NEW2, ADAMW_EPS };
enum { SGD_LR, SGD_DECAY, SGD_MOMENTUM };
enum { LION_KEEP, LION_LR, LION_OLD1, LION_NEW1, LION_OLD2, LION_NEW2 };

/* Elements [first, end) of one update. */
typedef void ndp_optim_loop(const ndp_update *u, int64_t first, int64_t end);

typedef struct ndp_optim_kernels {
    ndp_optim_loop *update[NDP_OPTIMIZER_COUNT];
    /* Sum of squares of elements [first, end); the order of the additions depends on end - first alone. */
    double (*squares)(const void *x, int64_t first, int64_t end);
} ndp_optim_kernels;

extern const ndp_optim_kernels ndp_optim_f32, ndp_optim_f64, ndp_optim_f32_avx512;

/* The fastest loops of this machine for `type`, fp32 or fp64. */
const ndp_optim_kernels *ndp_optim_kernels_for(ndp_dtype type);
/* Threads worth waking for n elements: one when they are few. */
int ndp_optim_threads(int64_t n, int threads);

#endif
