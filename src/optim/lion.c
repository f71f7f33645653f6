/* Lion (Chen et al. 2023), with decoupled weight decay:
 *
 *     w = (1 - lr wd) w - lr sign(b1 m + (1 - b1) g)        m = b2 m + (1 - b2) g
 *
 * Every weight moves by lr in each step, so typical learning rates are 3 to 10 times smaller than AdamW's, and weight
 * decay is larger by the same factor. A momentum below 1e-34 becomes zero, and so does its sign. */
#include "optim/optim.h"

static void constants(const ndp_optimizer_opts *o, double lr, int64_t update, double out[NDP_OPTIMIZER_CONSTANTS]) {
    (void)update;
    out[NDP_LION_KEEP] = 1 - lr * o->weight_decay;
    out[NDP_LION_LR] = lr;
    out[NDP_LION_OLD1] = o->betas[0];
    out[NDP_LION_NEW1] = 1 - o->betas[0];
    out[NDP_LION_OLD2] = o->betas[1];
    out[NDP_LION_NEW2] = 1 - o->betas[1];
}

/* The bounds: where a weight's mixed gradient is nearly 0, rounding decides the sign, and the weight moves by lr in the
 * other direction. Runs on one rank that round differently measure how often that happens (spreads). It may also happen
 * on a layout and in none of those runs: the fixed bounds cover a few such weights, up to this learning rate. */
const ndp_optimizer ndp_optimizer_lion = {.name = "lion",
                                          .op = &ndp_op_lion,
                                          .reads = {{"betas", "[0.9, 0.99]"}},
                                          .state = {"optimizer.m."},
                                          .constants = constants,
                                          .bounds = {.most_lr = 1e-4, .spreads = 10}};
