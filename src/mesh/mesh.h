/* The mesh: axes, rank <-> coordinate, groups. Pure arithmetic; nothing is opened, nothing is allocated.
 *
 * Order of the axes, outermost to innermost: pp, dp_replicate, dp_shard, cp, sp, tp. Neighbours on tp are adjacent
 * ranks. Every group is (base, stride, count), never a list. */
#ifndef NDP_MESH_MESH_H
#define NDP_MESH_MESH_H

#include "base/status.h"

typedef enum ndp_axis { NDP_PP, NDP_DP_REPLICATE, NDP_DP_SHARD, NDP_CP, NDP_SP, NDP_TP, NDP_AXES } ndp_axis;

/* "pp", "dp_replicate", ...; the configuration key is this with "_size". */
const char *ndp_axis_name(ndp_axis axis);

typedef struct ndp_layout {
    int size[NDP_AXES]; /* 0: auto, at most one of them */
    int ep;             /* carved out of dp_shard x cp x sp; 1 disables */
} ndp_layout;
#define NDP_LAYOUT_ONE                                                                                                 \
    { {1, 1, 1, 1, 1, 1}, 1 }

/* The ranks base, base + stride, ..., count of them; `rank` is this rank's place among them. */
typedef struct ndp_group {
    int base, stride, count, rank;
} ndp_group;

typedef struct ndp_mesh {
    ndp_layout layout;
    int world, rank;
    int coord[NDP_AXES];
    int kv_copies; /* ranks of the tensor axis that hold the same kv head: 1, or tp / kv heads */
} ndp_mesh;

typedef enum ndp_group_kind {
    NDP_GROUP_WORLD,
    NDP_GROUP_PP,
    NDP_GROUP_REPLICATE, /* dp_replicate alone */
    NDP_GROUP_DATA,      /* dp_replicate x dp_shard: who reads which samples */
    NDP_GROUP_SHARD,     /* dp_shard x cp x sp: slices of the flat unit buffers */
    NDP_GROUP_LOSS,      /* dp_replicate x dp_shard x cp x sp: valid-token count, loss */
    NDP_GROUP_CP,
    NDP_GROUP_SP,
    NDP_GROUP_TP,
    NDP_GROUP_KV, /* the ranks of the tensor axis that hold the same kv head */
    NDP_GROUPS
} ndp_group_kind;
const char *ndp_group_name(ndp_group_kind kind);

/* What the layout rules ask of a model. */
typedef struct ndp_layout_facts {
    int heads, kv_heads, layers;
} ndp_layout_facts;

/* Fills the one size that is 0 ("auto") so that the product is `world`. NDP_EINVAL, with the numbers, what to set and
 * the nearest legal layouts: a product that is not `world`; heads % (tp x sp) != 0; kv heads and tp x sp where neither
 * divides the other; pp > layers; ep that does not divide dp_shard x cp x sp. `facts` may be NULL (product only). */
NDP_API ndp_status ndp_layout_resolve(ndp_layout *layout, int world, const ndp_layout_facts *facts);

/* NDP_ENOTSUP with the axes above 1 that cannot be trained yet. Nothing else decides this. */
NDP_API ndp_status ndp_layout_built(const ndp_layout *layout);

/* The mesh as `rank` of a resolved layout sees it. */
NDP_API ndp_status ndp_mesh_init(const ndp_layout *layout, int rank, ndp_mesh *out);
int ndp_mesh_rank_of(const ndp_layout *layout, const int coord[NDP_AXES]);
ndp_group ndp_mesh_group(const ndp_mesh *mesh, ndp_group_kind kind);

/* "dp_replicate 2 x dp_shard 2" (axes above 1 only; "one rank" for none) into `out`; returns `out`. */
char *ndp_layout_text(const ndp_layout *layout, char *out, size_t size);
/* "tp=2,dp_shard=4", as users write it: axes by their names, ep among them, in any order; those not named are 1.
 * NDP_EINVAL names the nearest axis. The sizes may still break a rule. */
NDP_API ndp_status ndp_layout_parse(const char *text, ndp_layout *out);

/* Batch arithmetic. global = micro x dp_replicate x dp_shard x accumulation, in samples. */
typedef struct ndp_batch_plan {
    int global_batch, micro_batch, data_ranks, accumulation;
} ndp_batch_plan;
/* Derives the accumulation; NDP_EINVAL with the equation and the nearest global batches if it is not whole. */
NDP_API ndp_status ndp_batch_resolve(const ndp_layout *layout, int global_batch, int micro_batch, ndp_batch_plan *out);

#endif
