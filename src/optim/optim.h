/* Optimizers over arrays of owned elements. They know nothing of tensors, ranks or units: a caller walks the segments
 * of its slice and calls one function a segment. All are threaded and vectorised; results do not depend on the number
 * of threads. fp64 storage serves the `ref` device. */
#ifndef NDP_OPTIM_OPTIM_H
#define NDP_OPTIM_OPTIM_H

#include "tensor/dtype.h"

typedef enum ndp_optim_kind { NDP_OPTIM_ADAMW, NDP_OPTIM_SGD } ndp_optim_kind;

/* One segment of n elements that share a weight decay. */
typedef struct ndp_optim_call {
    ndp_dtype type; /* of weight, grad and state: fp32 or fp64 */
    void *weight;   /* master weights, updated in place */
    const void *grad;
    void *state[2]; /* adamw: m, v; sgd with momentum: the buffer, NULL */
    uint16_t *copy; /* bf16 copy of the weights, written along; NULL: none */
    int64_t n;
    double lr, beta1, beta2, eps, weight_decay, momentum;
    double grad_scale; /* clipping factor, on every gradient element */
    int64_t step;      /* 1 for the first update: bias correction */
    int threads;
} ndp_optim_call;

/* AdamW, decoupled weight decay (Loshchilov & Hutter 2019), as torch.optim.AdamW computes it:
 * w *= 1 - lr wd; m, v moments; w -= lr / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + eps). Moments below 1e-34 become
 * zero. */
void ndp_adamw(const ndp_optim_call *c);
/* w -= lr (g + wd w), or with the momentum buffer b = momentum b + g (first step: b = g), as torch.optim.SGD. */
void ndp_sgd(const ndp_optim_call *c);
/* State arrays that `kind` keeps: 2, 1 or 0. */
int ndp_optim_states(ndp_optim_kind kind, double momentum);

/* Sum of squares in fp64, in an order that depends on n alone. fp32, fp64 or bf16 storage. NaN and inf come through. */
double ndp_sum_squares(const void *x, ndp_dtype type, int64_t n, int threads);
/* min(1, max_norm / norm); 1 when max_norm is 0 or norm is 0. */
double ndp_clip_factor(double norm, double max_norm);

typedef enum ndp_lr_kind { NDP_LR_CONSTANT, NDP_LR_LINEAR, NDP_LR_COSINE } ndp_lr_kind;
typedef struct ndp_lr_schedule {
    ndp_lr_kind kind;
    double lr, min_ratio; /* the last update of `steps` has lr x min_ratio (linear, cosine) */
    int64_t warmup, steps;
} ndp_lr_schedule;
/* Learning rate of update u (0 the first): linear warm-up lr (u + 1) / warmup for u < warmup, then the schedule. A
 * function of the update index alone. */
double ndp_lr_of(const ndp_lr_schedule *s, int64_t update);

#endif
