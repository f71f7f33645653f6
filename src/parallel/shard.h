/* Sharded data parallelism: where the elements of a flat buffer live (proven by placement/step_sums.c). One mechanism
 * serves DDP (one shard), FSDP, HSDP (shards and replicas) and ZeRO-1/2 (gathered weights are kept).
 *
 *   shards  kept = master           kept != master (bf16)
 *   1       the master is the       master, and a whole bf16 copy written along by the update
 *           buffer that ops read
 *   > 1     in place (group on one node): one buffer shared by the group; a gather is a barrier. In fp32 the owner's
 *           slice of it is the master; in bf16 the master is apart.
 *           else: a slice a rank; gathers fill a buffer that lives from gather to last use. In bf16 a bf16 slice is
 *           kept beside the master, to be sent.
 *
 * Packed buffers (bytes; kept = master) are held in the same ways: units unpack what they read.
 */
#ifndef NDP_PARALLEL_SHARD_H
#define NDP_PARALLEL_SHARD_H

#include "mesh/mesh.h"
#include "model/model.h"

typedef struct ndp_shard {
    int shards, index;   /* of the shard group */
    ndp_group_kind over; /* its ranks own the same slice and sum its gradient, as the owners complete it */
    int replicas;        /* ranks of that group */
    int64_t slice;       /* elements of one slice */
    bool same;           /* what is kept and gathered has the master's storage type */
    bool in_place;
    bool reshard; /* a gathered buffer is dropped after a forward; else kept until its last use of the update */
} ndp_shard;

/* How this rank holds a buffer, in the groups that the buffer names. Each block of
 * `node_ranks` consecutive ranks shares the memory of one node (ndp_transport_node_ranks). */
ndp_shard ndp_shard_buffer(const ndp_model *m, int buffer, const ndp_mesh *mesh, int node_ranks, bool reshard);

#endif
