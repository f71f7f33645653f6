/* What the updates of optimizers share: the places of their operands, and of the numbers in their constants. */
#ifndef NDP_OPS_UPDATE_H
#define NDP_OPS_UPDATE_H

#include "ops/op.h"

enum { NDP_OPTIMIZER_STATES = 2, NDP_OPTIMIZER_CONSTANTS = 8 }; /* at most */

/* Weights are a row of fp32 or fp64; or, with out[1], which then has their upper parts, of the type below, their lower
 * parts (ops/rounding.h); or bf16, without out[1]. States are of the type of weights, or bf16. What is bf16, out[1]
 * aside, is rounded at random. */
#define NDP_SPLIT_REST NDP_U16

enum {
    NDP_UPDATE_WEIGHT,
    NDP_UPDATE_GRAD,
    NDP_UPDATE_PIECES,
    NDP_UPDATE_CONSTANTS,
    NDP_UPDATE_CLIP,
    NDP_UPDATE_STATE, /* the first of NDP_OPTIMIZER_STATES */
    NDP_UPDATE_OPERANDS = NDP_UPDATE_STATE + NDP_OPTIMIZER_STATES,
    /* Those whose states are codes: the scales of their blocks follow (ops/dynamic_map.h). */
    NDP_UPDATE_SCALES = NDP_UPDATE_OPERANDS,
    NDP_CODED_OPERANDS = NDP_UPDATE_SCALES + NDP_OPTIMIZER_STATES
};

/* The updates that walk pieces, X(NAME, name, least, most, operands): each keeps `least` to `most` states. Their rules
 * (update.c) and the list of optimizers (optim/optim.h) are made from this list. */
#define NDP_UPDATES(X)                                                                                                 \
    X(ADAMW, adamw, 2, 2, NDP_UPDATE_OPERANDS)                                                                         \
    X(ADAMW8BIT, adamw8bit, 2, 2, NDP_CODED_OPERANDS)                                                                  \
    X(SGD, sgd, 0, 1, NDP_UPDATE_OPERANDS) /* without momentum it keeps none */                                        \
    X(LION, lion, 1, 1, NDP_UPDATE_OPERANDS)                                                                           \
    X(MUON, muon, 0, 0, NDP_UPDATE_OPERANDS) /* its momentum is muon_momentum's */

/* By place in a row of the operand `constants` [groups, NDP_OPTIMIZER_CONSTANTS]: the numbers of an update in fp64,
 * which kernels round to their type. A piece names its row. */
enum { NDP_UPDATE_NUMBER = NDP_OPTIMIZER_CONSTANTS - 2, NDP_UPDATE_SEED }; /* of all optimizers, for ndp_rounding */
enum {
    NDP_ADAMW_KEEP,   /* 1 - lr wd */
    NDP_ADAMW_RATE,   /* lr / (1 - b1^t) */
    NDP_ADAMW_UNBIAS, /* 1 / sqrt(1 - b2^t) */
    NDP_ADAMW_NEW1,   /* 1 - b1 */
    NDP_ADAMW_OLD2,   /* b2 */
    NDP_ADAMW_EPS
};
enum { NDP_SGD_LR, NDP_SGD_DECAY, NDP_SGD_MOMENTUM };
enum {
    NDP_LION_KEEP, /* 1 - lr wd */
    NDP_LION_LR,
    NDP_LION_OLD1, /* b1 */
    NDP_LION_NEW1, /* 1 - b1 */
    NDP_LION_OLD2, /* b2 */
    NDP_LION_NEW2  /* 1 - b2 */
};
enum {
    NDP_MUON_KEEP, /* 1 - lr wd */
    NDP_MUON_LR,
    NDP_MUON_MOMENTUM,
    NDP_MUON_AHEAD /* the share of the momentum in the direction: Nesterov's, the momentum; 1: it is the direction */
};

/* False: the step is not finite (clip_factor), and the update writes nothing. For kernels that run on the host. */
static inline bool ndp_update_applies(const ndp_op_call *c) {
    const double *clip = (const double *)c->in[NDP_UPDATE_CLIP].data;
    return !clip || *clip == *clip; /* NaN is not equal to itself */
}

/* What the scale of a block is multiplied by: 1, but where sums are split. No code is too large then either. */
static inline float ndp_code_margin(const ndp_exec *exec) {
    return 1 + (float)ndp_split_place(exec) / (2 * NDP_SPLITS + 1);
}

/* Moments that decay for long, as those of rare words do, would end as denormal numbers and stay there, at a tenth of
 * the speed. What is this small cannot move a weight: kernels store 0. */
#define NDP_TINY_MOMENT 1e-34

#endif
