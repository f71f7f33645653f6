/* SGD, as torch.optim.SGD computes it: d = g + wd w, with momentum b = momentum b + d and d = b; w -= lr d. */
#include "optim/kernels.h"

static bool stateless(const ndp_optimizer_opts *o) { return o->momentum == 0; }

static void constants(const ndp_optimizer_opts *o, double lr, int64_t update, double out[NDP_OPTIMIZER_CONSTANTS]) {
    (void)update;
    out[SGD_LR] = lr;
    out[SGD_DECAY] = o->weight_decay;
    out[SGD_MOMENTUM] = o->momentum;
}

const ndp_optimizer ndp_optimizer_sgd = {.name = "sgd",
                                         .reads = {{"momentum", NULL}},
                                         .state = {"optimizer.momentum."},
                                         .stateless = stateless,
                                         .constants = constants,
                                         .bounds = {.spreads = 10}};
