/* Muon (Jordan et al. 2024; Liu et al. 2025), with decoupled weight decay, for the projections of decoder blocks:
 *
 *     m = b m + (1 - b) g        u = (1 - b) g + b m        w = (1 - lr wd) w - lr 0.2 sqrt(max(rows, columns)) O(u)
 *
 * where O is five steps of Newton-Schulz (ops/newton_schulz.h), as torch.optim.Muon has it with match_rms_adamw, but in
 * fp32. The scale gives an update the size of AdamW's, so that one lr serves both: AdamW updates the embedding, the
 * positions, the head, norms and biases. The one state is the momentum.
 *
 * muon_spectral is that of microsoft/dion, which Axolotl runs over shards: u = m, other polynomials, and sqrt(rows /
 * columns) in place of the scale. */
#include "optim/optim.h"

static void constants(const ndp_optimizer_opts *o, double lr, int64_t update, double out[NDP_OPTIMIZER_CONSTANTS]) {
    (void)update;
    out[NDP_MUON_KEEP] = 1 - lr * o->weight_decay;
    out[NDP_MUON_LR] = lr;
    out[NDP_MUON_MOMENTUM] = out[NDP_MUON_AHEAD] = o->momentum;
}

static void spectral_constants(const ndp_optimizer_opts *o, double lr, int64_t update,
                               double out[NDP_OPTIMIZER_CONSTANTS]) {
    constants(o, lr, update, out);
    out[NDP_MUON_AHEAD] = 1;
}

#define MUON(NAME, of, is_spectral)                                                                                    \
    const ndp_optimizer ndp_optimizer_##NAME = {.name = #NAME,                                                         \
                                                .op = &ndp_op_muon,                                                    \
                                                .kinds = NDP_KINDS_PROJECTIONS & ~NDP_KINDS_VECTORS,                   \
                                                .others = NDP_ADAMW,                                                   \
                                                .whole = {&ndp_op_muon_momentum, &ndp_op_newton_schulz, is_spectral},  \
                                                .reads = {{"betas", NULL}, {"eps", NULL}, {"momentum", "0.95"}},       \
                                                .state = {"optimizer.m."},                                             \
                                                .constants = of,                                                       \
                                                .bounds = {.most_lr = 1e-3, .spreads = 10}}
MUON(muon, constants, false);
MUON(muon_spectral, spectral_constants, true);
