/* AdamW, decoupled weight decay (Loshchilov & Hutter 2019), as torch.optim.AdamW computes it:
 *
 *     m = b1 m + (1 - b1) g        v = b2 v + (1 - b2) g^2
 *     w = (1 - lr wd) w - lr / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + eps)
 *
 * Moments below 1e-34 become zero. */
#include "optim/optim.h"

#include <math.h>

static void constants(const ndp_optimizer_opts *o, double lr, int64_t update, double out[NDP_OPTIMIZER_CONSTANTS]) {
    double step = (double)(update + 1);
    out[NDP_ADAMW_KEEP] = 1 - lr * o->weight_decay;
    out[NDP_ADAMW_RATE] = lr / (1 - pow(o->betas[0], step));
    out[NDP_ADAMW_UNBIAS] = 1 / sqrt(1 - pow(o->betas[1], step));
    out[NDP_ADAMW_NEW1] = 1 - o->betas[0];
    out[NDP_ADAMW_OLD2] = o->betas[1];
    out[NDP_ADAMW_EPS] = o->eps;
}

const ndp_optimizer ndp_optimizer_adamw = {.name = "adamw",
                                           .op = &ndp_op_adamw,
                                           .reads = {{"betas", NULL}, {"eps", NULL}},
                                           .state = {"optimizer.m.", "optimizer.v."},
                                           .constants = constants,
                                           .bounds = {.most_lr = 3e-4}};
