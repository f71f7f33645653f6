/* The mesh: sizes of a layout, rank <-> coordinate, groups. Pure arithmetic; nothing is opened, nothing is allocated.
 * Neighbours on the innermost axis, tp, are adjacent ranks. Every group is (base, stride, count), never a list. */
#ifndef NDP_MESH_MESH_H
#define NDP_MESH_MESH_H

#include "base/status.h"

/* All sizes of a layout, listed here only: X(NAME, name, DEFAULT, WEIGHT, "help").
 * A row makes the enumerator NDP_<NAME>, the key parallelism.<name>_size with this default and help, and the name in
 * --layout. WEIGHT: what changing it costs a suggested layout (layout.c).
 * The axes come first, outermost to innermost. ep follows them: experts are a second view of the ranks of dp_shard x cp
 * x sp x tp, so ep multiplies nothing; a rank's place on it is its place in the group ep. */
#define NDP_AXES_LIST(X)                                                                                               \
    X(PP, pp, "1", 1.05, "pipeline stages")                                                                            \
    X(DP_REPLICATE, dp_replicate, "1", 1.01, "replicas of the sharded model")                                          \
    X(DP_SHARD, dp_shard, "auto", 1.0, "ranks that share the parameters of a replica")                                 \
    X(CP, cp, "1", 1.02, "context parallelism: ranks along the sequence")                                              \
    X(SP, sp, "1", 1.03, "Ulysses sequence parallelism: ranks exchange sequence for heads")                            \
    X(TP, tp, "1", 1.04, "tensor parallelism")                                                                         \
    X(EP, ep, "1", 1.0, "expert parallelism: ranks, within dp_shard x cp x sp x tp, that share the experts")

#define NDP_AXIS_ENUMERATOR(NAME, ...) NDP_##NAME,
typedef enum ndp_axis {
    NDP_AXES_LIST(NDP_AXIS_ENUMERATOR) NDP_SIZES, /* how many sizes a layout has */
    NDP_AXES = NDP_EP                             /* how many of them are axes of the mesh */
} ndp_axis;

typedef struct ndp_axis_row {
    const char *name; /* "dp_replicate"; the configuration key is this with "_size" */
    double weight;
} ndp_axis_row;
extern const ndp_axis_row ndp_axis_table[NDP_SIZES];

const char *ndp_axis_name(ndp_axis axis);

typedef struct ndp_layout {
    int size[NDP_SIZES]; /* 0: auto, at most one of the axes; ep is at least 1 */
} ndp_layout;
#define NDP_AXIS_ONE(...) 1,
#define NDP_LAYOUT_ONE                                                                                                 \
    {                                                                                                                  \
        { NDP_AXES_LIST(NDP_AXIS_ONE) }                                                                                \
    }

/* The ranks base, base + stride, ..., count of them; `rank` is this rank's place among them. */
typedef struct ndp_group {
    int base, stride, count, rank;
} ndp_group;

/* Pairs of pipeline ranks that hold a table together, as coordinates on pp; equal ones: no pair. */
enum { NDP_TIES = 3 };
typedef struct ndp_ties {
    int of[NDP_TIES][2];
} ndp_ties;

typedef struct ndp_mesh {
    ndp_layout layout;
    int world, rank;
    int coord[NDP_AXES];
    int kv_heads;  /* of the model; 0: a mesh without one */
    int kv_copies; /* ranks of the tensor axis that hold the same kv head */
    ndp_ties ties;
} ndp_mesh;

/* The groups, each over adjacent axes or a part of them: X(NAME, name, FIRST, LAST, PART). PART, of which the
 * operand is a member of ndp_mesh:
 *     ALL         all ranks of the axes
 *     INNER(n)    n consecutive ones: the axes' ranks are divided into such blocks
 *     OUTER(n)    those at the same place of each block of n; n 1: the rank alone
 *     PAIR(two)   ranks two[0] and two[1] of the axes; any other rank is alone */
#define NDP_GROUPS_LIST(X)                                                                                             \
    X(WORLD, world, PP, TP, ALL)                                                                                       \
    X(PP, pp, PP, PP, ALL)                                                                                             \
    X(REPLICATE, replicate, DP_REPLICATE, DP_REPLICATE, ALL)                                                           \
    X(DATA, data, DP_REPLICATE, DP_SHARD, ALL) /* ranks that read different samples */                                 \
    X(SHARD, shard, DP_SHARD, SP, ALL)         /* slices of the flat unit buffers */                                   \
    X(LOSS, loss, DP_REPLICATE, SP, ALL)       /* valid-token count, loss */                                           \
    X(CP, cp, CP, CP, ALL)                                                                                             \
    X(SP, sp, SP, SP, ALL)                                                                                             \
    X(TP, tp, TP, TP, ALL)                                                                                             \
    X(KV, kv, TP, TP, INNER(kv_copies))   /* ranks that hold the same kv head */                                       \
    X(TIE, tie, PP, PP, PAIR(ties.of[0])) /* two stages that hold a tied table; a row for each pair */                 \
    X(TIE_2, tie_2, PP, PP, PAIR(ties.of[1]))                                                                          \
    X(TIE_3, tie_3, PP, PP, PAIR(ties.of[2]))                                                                          \
    X(EP, ep, DP_SHARD, TP, INNER(layout.size[NDP_EP]))                     /* ranks that have different experts */    \
    X(EXPERT_SHARD, expert_shard, DP_SHARD, TP, OUTER(layout.size[NDP_EP])) /* slices of the same ones */

#define NDP_GROUP_ENUMERATOR(NAME, ...) NDP_GROUP_##NAME,
typedef enum ndp_group_kind { NDP_GROUPS_LIST(NDP_GROUP_ENUMERATOR) NDP_GROUPS } ndp_group_kind;
const char *ndp_group_name(ndp_group_kind kind);
/* True if ranks of such a group may differ on the axis. */
bool ndp_group_spans(ndp_group_kind kind, ndp_axis axis);

/* A set of group kinds: a bit for each. */
typedef uint32_t ndp_groups;
#define NDP_GROUP_BIT(kind) ((ndp_groups)1 << (kind))

/* Parts of a group, as one of its ranks sees them. `n` divides the number of ranks. */
ndp_group ndp_group_inner(ndp_group g, int n);
ndp_group ndp_group_outer(ndp_group g, int n);

/* What the layout rules need to know about a model. One without attention has no heads (both 0), and they limit
 * nothing; one without mixtures has no experts. */
typedef struct ndp_layout_facts {
    int heads, kv_heads, layers, experts;
    int most_kv_heads; /* where layers differ in them, and kv_heads are the fewest; 0: all have kv_heads */
    int state_heads;   /* key heads of layers with a state; 0: none has one */
} ndp_layout_facts;

/* Fills the one size that is 0 ("auto") so that the product is `world`. NDP_EINVAL, with the numbers, what to set and
 * the nearest legal layouts: a product that is not `world`; heads % (tp x sp) != 0; key heads of
 * layers with a state % tp != 0; kv heads and tp x sp where neither
 * divides the other; pp > layers; ep that does not divide dp_shard x cp x sp x tp, or is more than the experts. `facts`
 * may be NULL (product only). */
NDP_API ndp_status ndp_layout_resolve(ndp_layout *layout, int world, const ndp_layout_facts *facts);

/* How far a layout is from one that was asked for, of which auto sizes count nothing: the sum of |log(new / asked)|,
 * weighted by axis. */
NDP_API double ndp_layout_distance(const ndp_layout *asked, const ndp_layout *l);

/* What a mesh needs to know about the model that runs on it. */
typedef struct ndp_mesh_facts {
    int kv_heads;
    ndp_ties ties; /* parallel/stages.h finds them */
} ndp_mesh_facts;
#define NDP_NO_MODEL ((const ndp_mesh_facts *)NULL) /* a mesh for ranks alone: its kv group is the rank itself */

/* The mesh as `rank` of a resolved layout sees it; it does not change afterwards. */
NDP_API ndp_status ndp_mesh_init(const ndp_layout *layout, int rank, const ndp_mesh_facts *facts, ndp_mesh *out);
int ndp_mesh_rank_of(const ndp_layout *layout, const int coord[NDP_AXES]);
ndp_group ndp_mesh_group(const ndp_mesh *mesh, ndp_group_kind kind);
/* Whether the rank is the first of those that compute the same samples. */
static inline bool ndp_mesh_leads(const ndp_mesh *m) {
    return m->coord[NDP_PP] == 0 && m->coord[NDP_CP] == 0 && m->coord[NDP_SP] == 0 && m->coord[NDP_TP] == 0;
}
/* The mesh that this rank would see if its replica of the model were the only one. */
ndp_mesh ndp_mesh_of_replica(const ndp_mesh *mesh);
/* The group of a pair of ranks of pp, in either order; NDP_GROUPS: the mesh has none. */
ndp_group_kind ndp_mesh_pair(const ndp_mesh *mesh, const int pair[2]);

/* "dp_replicate 2 x dp_shard 2, ep 2" (sizes above 1 only; "one rank" for none) into `out`; returns `out`. */
char *ndp_layout_text(const ndp_layout *layout, char *out, size_t size);
/* "tp=2,dp_shard=4", as users write it: any sizes, in any order; the others are 1. NDP_EINVAL names the nearest
 * axis. The sizes may still break a rule. */
NDP_API ndp_status ndp_layout_parse(const char *text, ndp_layout *out);
/* The same, and dp_shard is 0, what is left of the ranks, where it is not named. */
NDP_API ndp_status ndp_layout_parse_open(const char *text, ndp_layout *out);

/* Batch arithmetic. global = micro x dp_replicate x dp_shard x accumulation, in samples. */
typedef struct ndp_batch_plan {
    int global_batch, micro_batch, data_ranks, accumulation;
} ndp_batch_plan;
/* Derives the accumulation; NDP_EINVAL with the equation and the nearest global batches if it is not an integer. */
NDP_API ndp_status ndp_batch_resolve(const ndp_layout *layout, int global_batch, int micro_batch, ndp_batch_plan *out);

#endif
