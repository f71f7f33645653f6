/* The mesh of a rank: its coordinates and its groups, by arithmetic on the sizes of the layout; and the batch. */
#include "mesh/mesh.h"

#include <stddef.h>
#include <stdio.h>

#define AXIS_ROW(NAME, name, initial, weight, help) [NDP_##NAME] = {#name, weight},
const ndp_axis_row ndp_axis_table[NDP_SIZES] = {NDP_AXES_LIST(AXIS_ROW)};

const char *ndp_axis_name(ndp_axis axis) { return ndp_axis_table[axis].name; }

typedef enum part { PART_ALL, PART_INNER, PART_OUTER, PART_PAIR } part;

/* A group is the ranks of adjacent axes, or a part of them, so it is one (base, stride, count). `operand`: where
 * ndp_mesh has the operand of the part. */
#define ALL PART_ALL, 0
#define INNER(member) PART_INNER, offsetof(ndp_mesh, member)
#define OUTER(member) PART_OUTER, offsetof(ndp_mesh, member)
#define PAIR(member) PART_PAIR, offsetof(ndp_mesh, member)
#define GROUP_ROW(NAME, name, first, last, ...) [NDP_GROUP_##NAME] = {#name, NDP_##first, NDP_##last, __VA_ARGS__},
static const struct {
    const char *name;
    ndp_axis first, last;
    part part;
    size_t operand;
} group_kinds[NDP_GROUPS] = {NDP_GROUPS_LIST(GROUP_ROW)};
_Static_assert(NDP_GROUPS <= 32, "ndp_groups has 32 bits");

const char *ndp_group_name(ndp_group_kind kind) { return group_kinds[kind].name; }

bool ndp_group_spans(ndp_group_kind kind, ndp_axis axis) {
    return group_kinds[kind].first <= axis && axis <= group_kinds[kind].last;
}

/* Where tp and the kv heads do not divide each other, every rank holds all of them, for the sequence axis to choose
 * from; they are summed over tp. */
static int kv_copies(int tp, int heads) { return heads > 0 && tp % heads == 0 ? tp / heads : 1; }

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
    mesh.kv_copies = kv_copies(layout->size[NDP_TP], mesh.kv_heads);
    mesh.ties = facts ? facts->ties : (ndp_ties){0};
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

ndp_group ndp_group_inner(ndp_group g, int n) {
    int place = g.rank % n;
    return (ndp_group){g.base + (g.rank - place) * g.stride, g.stride, n, place};
}

ndp_group ndp_group_outer(ndp_group g, int n) {
    return (ndp_group){g.base + g.rank % n * g.stride, g.stride * n, g.count / n, g.rank / n};
}

/* A rank that is not number a or b is alone in its pair, and so are all if a equals b. */
static ndp_group pair_of(ndp_group g, int a, int b) {
    int low = a < b ? a : b, apart = a + b - 2 * low;
    if (apart == 0 || (g.rank != a && g.rank != b))
        return ndp_group_inner(g, 1);
    return (ndp_group){g.base + low * g.stride, g.stride * apart, 2, g.rank != low};
}

/* All ranks of the axes. */
static ndp_group over_axes(const ndp_mesh *mesh, ndp_axis first, ndp_axis last) {
    ndp_group g = {.stride = 1, .count = 1};
    for (int axis = (int)last + 1; axis < NDP_AXES; axis++)
        g.stride *= mesh->layout.size[axis];
    for (ndp_axis axis = first; axis <= last; axis++) {
        g.count *= mesh->layout.size[axis];
        g.rank = g.rank * mesh->layout.size[axis] + mesh->coord[axis];
    }
    g.base = mesh->rank - g.rank * g.stride;
    return g;
}

static const int *operand(const ndp_mesh *mesh, int kind) {
    return (const int *)((const char *)mesh + group_kinds[kind].operand);
}

ndp_group ndp_mesh_group(const ndp_mesh *mesh, ndp_group_kind kind) {
    ndp_group all = over_axes(mesh, group_kinds[kind].first, group_kinds[kind].last);
    const int *n = operand(mesh, (int)kind);
    switch (group_kinds[kind].part) {
    case PART_INNER:
        return ndp_group_inner(all, *n);
    case PART_OUTER: /* without blocks, the rank is alone */
        return *n > 1 ? ndp_group_outer(all, *n) : ndp_group_inner(all, 1);
    case PART_PAIR:
        return pair_of(all, n[0], n[1]);
    default:
        return all;
    }
}

ndp_mesh ndp_mesh_of_replica(const ndp_mesh *mesh) {
    ndp_mesh one = *mesh;
    one.world /= one.layout.size[NDP_DP_REPLICATE];
    one.layout.size[NDP_DP_REPLICATE] = 1;
    one.coord[NDP_DP_REPLICATE] = 0;
    one.rank = ndp_mesh_rank_of(&one.layout, one.coord);
    return one;
}

ndp_group_kind ndp_mesh_pair(const ndp_mesh *mesh, const int pair[2]) {
    for (int kind = 0; kind < NDP_GROUPS && pair[0] != pair[1]; kind++) {
        const int *two = operand(mesh, kind);
        if (group_kinds[kind].part == PART_PAIR &&
            ((two[0] == pair[0] && two[1] == pair[1]) || (two[0] == pair[1] && two[1] == pair[0])))
            return (ndp_group_kind)kind;
    }
    return NDP_GROUPS;
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
