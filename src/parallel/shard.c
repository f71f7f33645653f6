#include "parallel/shard.h"

/* All ranks of the group on one node, for every group alike, so that all ranks decide the same. */
static bool groups_stay_on_nodes(const ndp_mesh *mesh, const ndp_group *g, int node_ranks) {
    return node_ranks >= mesh->world || node_ranks % (g->stride * g->count) == 0;
}

ndp_shard ndp_shard_buffer(const ndp_model *m, int buffer, const ndp_mesh *mesh, int node_ranks, bool reshard) {
    const ndp_buffer *b = &m->buffers[buffer];
    ndp_group owners = ndp_mesh_group(mesh, b->owners);
    ndp_shard s = {.shards = owners.count, .index = owners.rank, .replicas = ndp_mesh_group(mesh, b->copies).count};
    s.slice = ndp_segments_slice(&b->segments, s.shards);
    const ndp_storage *types = &m->buffers[buffer].storage;
    s.same = types->compute == types->master;
    s.in_place = s.shards > 1 && groups_stay_on_nodes(mesh, &owners, node_ranks);
    s.reshard = reshard;
    return s;
}
