/* Optimizer states that are codes (ops/dynamic_map.h), in checkpoints: a tensor of codes of u8, with the name and shape
 * of the state in numbers, and a vector with the scale of each of its blocks.
 *
 * Blocks start with a tensor, or with the part of it that a rank of the tensor axis has. So the vector has the parts of
 * a fused tensor one after the other, of each those of the ranks, of each its blocks; it depends on tp_size, and on no
 * other size. Under another tp_size the blocks are others, and states are quantized anew. */
#ifndef NDP_WEIGHTS_STATE_CODES_H
#define NDP_WEIGHTS_STATE_CODES_H

#include "weights/weights.h"

/* The largest tp_size that a checkpoint may name. */
enum { NDP_MOST_CODED_TP = 4096 };

/* Appends the tensors of state `state` that are codes, and those of their scales, as ranks with `tp` ranks of the
 * tensor axis have them; if that is what the engine's have, with this rank's pieces. Borrows the engine. Nothing for
 * other optimizers. */
NDP_API ndp_status ndp_state_codes_add(ndp_tensor_list *list, const ndp_engine *e, int state, int tp, ndp_dtype scales);

/* Loads state `state` from a checkpoint that was written with that size. With another one than the engine's the
 * gradients of coded tensors are overwritten. */
NDP_API ndp_status ndp_state_codes_load(ndp_engine *e, const ndp_checkpoint *c, int state, int tp);

#endif
