/* SGD, as torch.optim.SGD computes it: d = g + wd w, with momentum b = momentum b + d and d = b; w -= lr d. */
#include "optim/optim.h"

static bool stateless(const ndp_optimizer_opts *o) { return o->momentum == 0; }

static void constants(const ndp_optimizer_opts *o, double lr, int64_t update, double out[NDP_OPTIMIZER_CONSTANTS]) {
    (void)update;
    out[NDP_SGD_LR] = lr;
    out[NDP_SGD_DECAY] = o->weight_decay;
    out[NDP_SGD_MOMENTUM] = o->momentum;
}

const ndp_optimizer ndp_optimizer_sgd = {.name = "sgd",
                                         .op = &ndp_op_sgd,
                                         .reads = {{"momentum", NULL}},
                                         .state = {"optimizer.momentum."},
                                         .stateless = stateless,
                                         .constants = constants,
                                         .bounds = {.spreads = 10}};
