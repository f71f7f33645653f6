/* How a rank holds a buffer. Only arithmetic on the mesh: every rank computes the same answer for every other one. */
#include "parallel/shard.h"

/* All ranks of the group on one node, for every group alike, so that all ranks decide the same. */
static bool groups_stay_on_nodes(const ndp_mesh *mesh, const ndp_group *g, int node_ranks) {
    return node_ranks >= mesh->world || node_ranks % (g->stride * g->count) == 0;
}

/* Units communicate over the axes pp, cp, sp and tp, so other operations over those cannot overlap with units. */
static bool is_free(ndp_group_kind kind) {
    bool used = false;
    for (int axis = 0; axis < NDP_AXES; axis++)
        used |= axis != NDP_DP_REPLICATE && axis != NDP_DP_SHARD && ndp_group_spans(kind, (ndp_axis)axis);
    return !used;
}

/* The first group over which all segments are summed; NDP_GROUPS if they share no group. */
static ndp_group_kind common_group(const ndp_segments *s) {
    ndp_groups common = s->n > 0 ? s->items[0].sums : 0;
    int kind = 0;
    for (int i = 1; i < s->n; i++)
        common &= s->items[i].sums;
    while (kind < NDP_GROUPS && !(common & NDP_GROUP_BIT(kind) && is_free((ndp_group_kind)kind)))
        kind++;
    return (ndp_group_kind)kind;
}

ndp_shard ndp_shard_buffer(const ndp_model *m, int buffer, const ndp_mesh *mesh, int node_ranks, bool reshard) {
    const ndp_buffer *b = &m->buffers[buffer];
    ndp_group owners = ndp_mesh_group(mesh, b->owners);
    ndp_shard s = {.shards = owners.count, .index = owners.rank, .over = common_group(&b->segments)};
    s.replicas = s.over == NDP_GROUPS ? 1 : ndp_mesh_group(mesh, s.over).count;
    s.slice = ndp_segments_slice(&b->segments, s.shards);
    const ndp_storage *types = &b->storage;
    s.same = types->kept == types->master;
    s.in_place = s.shards > 1 && groups_stay_on_nodes(mesh, &owners, node_ranks);
    s.reshard = reshard;
    return s;
}
