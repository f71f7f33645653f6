/* The mesh of a rank: its coordinates and its groups, by arithmetic on the sizes of the layout; and the batch. */
#include "mesh/mesh.h"

#include <stdio.h>
#include <string.h>

#define AXIS_ROW(NAME, name, built, initial, weight, help) [NDP_##NAME] = {#name, built, weight},
const ndp_axis_row ndp_axis_table[NDP_SIZES] = {NDP_AXES_LIST(AXIS_ROW)};

const char *ndp_axis_name(ndp_axis axis) { return ndp_axis_table[axis].name; }

/* Every group covers adjacent axes, `first` to `last`, so it is one (base, stride, count). The groups kv and tie are
 * parts of their axes. */
#define GROUP_ROW(NAME, name, first, last) [NDP_GROUP_##NAME] = {#name, NDP_##first, NDP_##last},
static const struct {
    const char *name;
    ndp_axis first, last;
} group_kinds[NDP_GROUPS] = {NDP_GROUPS_LIST(GROUP_ROW)};

const char *ndp_group_name(ndp_group_kind kind) { return group_kinds[kind].name; }

ndp_status ndp_mesh_init(const ndp_layout *layout, int rank, const ndp_mesh_facts *facts, ndp_mesh *out) {
    ndp_mesh mesh = {.layout = *layout, .rank = rank};
    int64_t world = 1;
    for (int axis = 0; axis < NDP_AXES; axis++) {
        NDP_CHECK(layout->size[axis] >= 1, "%s_size is %d; a mesh needs a resolved layout", ndp_axis_table[axis].name,
                  layout->size[axis]);
        world *= layout->size[axis];
        NDP_CHECK(world <= INT32_MAX, "the layout has more than %d ranks", INT32_MAX);
    }
    NDP_CHECK(rank >= 0 && rank < world, "rank %d is not one of the %d ranks of the layout", rank, (int)world);
    mesh.world = (int)world;
    mesh.kv_heads = facts ? facts->kv_heads : 0;
    memcpy(mesh.tie, facts ? facts->tie : (int[2]){0, 0}, sizeof mesh.tie);
    for (int axis = NDP_AXES - 1, rest = rank; axis >= 0; axis--) {
        mesh.coord[axis] = rest % layout->size[axis];
        rest /= layout->size[axis];
    }
    *out = mesh;
    return NDP_OK;
}

int ndp_mesh_rank_of(const ndp_layout *layout, const int coord[NDP_AXES]) {
    int rank = 0;
    for (int axis = 0; axis < NDP_AXES; axis++)
        rank = rank * layout->size[axis] + coord[axis];
    return rank;
}

/* Ranks of the tensor axis that hold the same kv head. Where tp and the kv heads do not divide each other, every rank
 * holds all of them, for the sequence axis to choose from. */
static int kv_copies(const ndp_mesh *mesh) {
    int tp = mesh->layout.size[NDP_TP], heads = mesh->kv_heads;
    return heads > 0 && tp % heads == 0 ? tp / heads : 1;
}

/* Leaves of the pipeline's group its two ranks with a tied table; any other rank is alone. */
static void tie_group(const ndp_mesh *mesh, ndp_group *g) {
    int low = mesh->tie[0] < mesh->tie[1] ? 0 : 1, first = mesh->tie[low], apart = mesh->tie[!low] - first;
    bool member = apart > 0 && (g->rank == first || g->rank == first + apart);
    g->rank = member && g->rank != first;
    g->count = member ? 2 : 1;
    g->stride *= member ? apart : 1;
}

ndp_group ndp_mesh_group(const ndp_mesh *mesh, ndp_group_kind kind) {
    ndp_group g = {.stride = 1, .count = 1};
    for (int axis = (int)group_kinds[kind].last + 1; axis < NDP_AXES; axis++)
        g.stride *= mesh->layout.size[axis];
    for (ndp_axis axis = group_kinds[kind].first; axis <= group_kinds[kind].last; axis++) {
        g.count *= mesh->layout.size[axis];
        g.rank = g.rank * mesh->layout.size[axis] + mesh->coord[axis];
    }
    if (kind == NDP_GROUP_KV) {
        g.count = kv_copies(mesh);
        g.rank %= g.count;
    }
    if (kind == NDP_GROUP_TIE)
        tie_group(mesh, &g);
    g.base = mesh->rank - g.rank * g.stride;
    return g;
}

char *ndp_layout_text(const ndp_layout *layout, char *out, size_t size) {
    size_t used = 0;
    for (int axis = 0; axis < NDP_AXES && used < size; axis++) {
        const char *times = used ? " x " : "";
        if (layout->size[axis] == 0)
            used += (size_t)snprintf(out + used, size - used, "%s%s auto", times, ndp_axis_table[axis].name);
        else if (layout->size[axis] != 1)
            used += (size_t)snprintf(out + used, size - used, "%s%s %d", times, ndp_axis_table[axis].name,
                                     layout->size[axis]);
    }
    if (!used && size)
        used = (size_t)snprintf(out, size, "one rank");
    if (layout->size[NDP_EP] != 1 && used < size)
        snprintf(out + used, size - used, " with ep %d", layout->size[NDP_EP]);
    return out;
}

ndp_status ndp_batch_resolve(const ndp_layout *layout, int global_batch, int micro_batch, ndp_batch_plan *out) {
    int replicate = layout->size[NDP_DP_REPLICATE], shard = layout->size[NDP_DP_SHARD];
    NDP_CHECK(replicate >= 1 && shard >= 1, "the batch needs a resolved layout");
    NDP_CHECK(global_batch >= 1 && micro_batch >= 1, "global batch %d and micro batch %d must be positive",
              global_batch, micro_batch);
    int64_t pass = (int64_t)micro_batch * replicate * shard;
    int64_t accumulation = global_batch / pass;
    if (accumulation * pass != global_batch) {
        char nearest[96];
        if (accumulation)
            snprintf(nearest, sizeof nearest, "the nearest global batches are %lld and %lld",
                     (long long)(accumulation * pass), (long long)((accumulation + 1) * pass));
        else
            snprintf(nearest, sizeof nearest, "the smallest global batch is %lld", (long long)pass);
        return NDP_FAIL(
            NDP_EINVAL,
            "global batch %d is not a multiple of micro batch %d x dp_replicate %d x dp_shard %d = %lld; %s",
            global_batch, micro_batch, replicate, shard, (long long)pass, nearest);
    }
    *out = (ndp_batch_plan){global_batch, micro_batch, replicate * shard, (int)accumulation};
    return NDP_OK;
}
