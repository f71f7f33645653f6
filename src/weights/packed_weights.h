/* Packed weights (tensor/packed.h) of an engine: packed as they are read, and unpacked for those who compare weights.
 */
#ifndef NDP_WEIGHTS_PACKED_WEIGHTS_H
#define NDP_WEIGHTS_PACKED_WEIGHTS_H

#include "weights/weights.h"

/* Whether the scales of a matrix of so many elements, rows of which follow each other in files, are known: of a folder
 * that has it as nf4. Then they go to `codes` and `nested` (tensor/packed.h), and its codes stay what they are. */
typedef bool ndp_scales_reader(void *user, const ndp_segment *tensor, int64_t elements, uint8_t *codes, float *nested);
/* Fills this rank's slices of the packed buffers. A tensor, or the matrix of an expert, is packed whole, before any
 * cut, so codes are the same on every layout: its absmax are found first, for which all of it is read, then what this
 * rank has of it is read again and packed. At most a block of elements is in memory, or 64 rows of a tensor that files
 * hold transposed. NDP_ENOMEM, and the errors of `read`. */
NDP_API ndp_status ndp_engine_pack(ndp_engine *e, ndp_run_reader *read, ndp_scales_reader *scales, void *user);

/* Collective over `world`: the values of segment `s` of the whole model, or of its member `i`, which is packed as
 * `how`, go to their places in `out`, a whole tensor as files hold it, on every rank. */
NDP_API ndp_status ndp_engine_unpack(ndp_engine *e, ndp_comm *world, const ndp_segment *s, int64_t i, ndp_packing how,
                                     double *out);

#endif
