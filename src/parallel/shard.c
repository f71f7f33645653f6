#include "parallel/shard.h"

/* All ranks of the group on one node, for every group alike, so that all ranks decide the same. */
static bool groups_stay_on_nodes(const ndp_mesh *mesh, int node_ranks) {
    int inner = mesh->layout.size[NDP_DP_SHARD] * mesh->layout.size[NDP_CP] * mesh->layout.size[NDP_SP] *
                mesh->layout.size[NDP_TP];
    return node_ranks >= mesh->world || node_ranks % inner == 0;
}

ndp_shard ndp_shard_buffer(const ndp_model *m, int buffer, const ndp_mesh *mesh, int node_ranks, bool reshard) {
    ndp_group group = ndp_mesh_group(mesh, NDP_GROUP_SHARD);
    ndp_shard s = {.shards = group.count, .index = group.rank, .replicas = mesh->layout.size[NDP_DP_REPLICATE]};
    s.slice = ndp_segments_slice(&m->buffers[buffer].segments, s.shards);
    s.same = m->opts.compute == m->opts.master;
    s.in_place = s.shards > 1 && groups_stay_on_nodes(mesh, node_ranks);
    s.keep = !reshard;
    return s;
}
