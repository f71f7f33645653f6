/* From the whole model to what one rank computes of it: units over the pipeline axis (`stages`), parameters and heads
 * over the tensor axis (tensor.c), rows over the context and sequence axes (context.c), with the collectives between.
 * The data-parallel axes cut nothing here (shard.h). */
#ifndef NDP_PARALLEL_APPLY_H
#define NDP_PARALLEL_APPLY_H

#include "model/model.h"
#include "parallel/row_cut.h"
#include "parallel/stages.h"

/* `out`: the rank's parameter tables, graphs (derived in TRAIN mode) and data sizes; facts and options stay those of
 * the whole. graph/passes.h lists the passes. NDP_ENOMEM, NDP_EBUG. */
NDP_API ndp_status ndp_parallel_apply(const ndp_model *whole, const ndp_mesh *mesh, const ndp_parallel *how,
                                      const ndp_stages *stages, ndp_model *out);

/* The table of a buffer of the whole model as a rank of `mesh` holds it, in `arena`. NDP_ENOMEM. */
ndp_status ndp_parallel_segments(const ndp_segments *whole, const ndp_mesh *mesh, const ndp_parallel *how,
                                 ndp_arena *arena, ndp_segments *out);

#endif
