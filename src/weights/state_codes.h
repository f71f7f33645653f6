/* Optimizer states that are codes (ops/dynamic_map.h), in checkpoints: a tensor of codes of u8, with the name and shape
 * of the state in numbers, and a vector with the scale of each of its blocks.
 *
 * Blocks start with a tensor, or with the part of it that a rank of the tensor axis has, or of a stack a rank of those
 * that share experts. So the vector has the parts of a fused tensor one after the other, of each those of the ranks, of
 * each its blocks; it depends on tp_size, with ep_size above 1 of stacks on that alone, and on no other size. Under
 * others the blocks are others, and states are quantized anew. */
#ifndef NDP_WEIGHTS_STATE_CODES_H
#define NDP_WEIGHTS_STATE_CODES_H

#include "weights/weights.h"

/* The sizes that blocks depend on; the largest that a checkpoint may name. */
typedef struct ndp_code_cut {
    int tp, ep;
} ndp_code_cut;
enum { NDP_MOST_CODED_RANKS = 4096 };

ndp_code_cut ndp_code_cut_of(const ndp_engine *e);
static inline bool ndp_code_cuts_equal(ndp_code_cut a, ndp_code_cut b) { return a.tp == b.tp && a.ep == b.ep; }

/* Appends the tensors of state `state` that are codes, and those of their scales, as ranks of that cut have them; if
 * that is the engine's, with this rank's pieces. Borrows the engine. Nothing for other optimizers. */
NDP_API ndp_status ndp_state_codes_add(ndp_tensor_list *list, const ndp_engine *e, int state, ndp_code_cut cut,
                                       ndp_dtype scales);

/* Loads state `state` from a checkpoint that was written with that cut. With another one than the engine's the
 * gradients of tensors with other blocks are overwritten. */
NDP_API ndp_status ndp_state_codes_load(ndp_engine *e, const ndp_checkpoint *c, int state, ndp_code_cut cut);

#endif
