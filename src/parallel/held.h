/* Parameters that several ranks hold: the ranks of a group have the same elements of a segment.
 *
 *   group      the same elements of                                     each rank makes of their gradient
 *   replicate  all tensors                                              a part
 *   tp         norms, biases after a sum over tp: all that is not cut   a part; all, if every rank has all rows
 *   kv         k and v, where there are fewer kv heads than ranks       a part
 *   tie        a table that two pipeline stages use                     a part
 *
 * Parts are summed (segment.sums). The weight in the gradient norm and who writes files follow. */
#ifndef NDP_PARALLEL_HELD_H
#define NDP_PARALLEL_HELD_H

#include "mesh/mesh.h"
#include "tensor/segments.h"

/* The ranks of the group hold the same elements of `s`. `sum`: each makes a part of their gradient, else all of it. */
static inline void ndp_held_by(ndp_segment *s, const ndp_mesh *mesh, ndp_group_kind kind, bool sum) {
    ndp_mesh replica = ndp_mesh_of_replica(mesh);
    ndp_group g = ndp_mesh_group(&replica, kind);
    s->copies *= g.count;
    s->replica |= g.rank != 0;
    s->sums |= sum ? NDP_GROUP_BIT(kind) : 0;
}

#endif
