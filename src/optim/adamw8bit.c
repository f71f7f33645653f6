/* AdamW (adamw.c) whose moments are stored as 8-bit codes (Dettmers et al. 2021, "8-bit Optimizers via Block-wise
 * Quantization"), as bitsandbytes' AdamW8bit does: blocks of 256 elements, dynamic maps (ops/dynamic_map.h), signed for
 * m and not for v. A step decodes a block, updates moments and weights in fp32, and stores the codes that are nearest
 * to the new moments. An element takes 2 1/32 bytes instead of 8.
 *
 * Blocks start with a tensor, or with a rank's part of it, and end at multiples of 256 elements of its group of glued
 * tensors (tensor/segments.h). Embeddings and tensors of fewer than 4,096 elements have moments in fp32, which adamw
 * updates (segment.coded): gradients of rare words differ from others by orders of magnitude, and small tensors gain
 * nothing. */
#include "optim/optim.h"

static void constants(const ndp_optimizer_opts *o, double lr, int64_t update, double out[NDP_OPTIMIZER_CONSTANTS]) {
    ndp_optimizer_adamw.constants(o, lr, update, out);
}

/* The bounds: roundings turn a code now and then, and under tp, whose ranks have other blocks, all may be others. Runs
 * on one rank measure both (ndp_code_margin); layouts come to half of these bounds, as in bf16. */
const ndp_optimizer ndp_optimizer_adamw8bit = {.name = "adamw8bit",
                                               .op = &ndp_op_adamw8bit,
                                               .kinds = NDP_KINDS_CODED,
                                               .others = NDP_ADAMW,
                                               .reads = {{"betas", NULL}, {"eps", NULL}},
                                               .state = {"optimizer.m.", "optimizer.v."},
                                               .scales = {"optimizer.m_absmax.", "optimizer.v_absmax."},
                                               .constants = constants,
                                               .bounds = {.most_lr = 3e-4, .spreads = 2}};
