/* What the ranks of a layout send in a step, by groups; and what that puts on each link of a cluster. */
#ifndef NDP_CLUSTER_FLOWS_H
#define NDP_CLUSTER_FLOWS_H

#include "cluster/cluster.h"

/* Bytes that a rank of one place on pp sends in a step. */
typedef struct ndp_stage_sends {
    double bytes[NDP_GROUPS][NDP_SEND_PATTERNS];
} ndp_stage_sends;

/* All groups of a kind, and what each rank sends in its own. */
typedef struct ndp_flow {
    ndp_send_pattern pattern;
    ndp_group *groups;
    int n;
    double *bytes; /* by rank */
} ndp_flow;

typedef struct ndp_flows {
    ndp_flow *items;
    int n, world;
} ndp_flows;

/* Lists all groups of a kind; the caller frees the list. NDP_ENOMEM. */
NDP_API ndp_status ndp_groups_of_kind(const ndp_layout *l, const ndp_mesh_facts *facts, ndp_group_kind kind,
                                      ndp_group **out, int *n);
/* `of_stage`: of each place on pp. Independent of where ranks are. The caller releases it, unless this fails. */
NDP_API ndp_status ndp_flows_init(const ndp_layout *l, const ndp_mesh_facts *facts, const ndp_stage_sends *of_stage,
                                  ndp_flows *out);
void ndp_flows_release(ndp_flows *f);

/* Room for the loads of any level. */
size_t ndp_flows_most_links(const ndp_cluster *c, int world);
/* Sets loads[link] to the bytes that leave over each link of a level (ndp_cluster_link_count) in a step. NDP_ENOMEM. */
NDP_API ndp_status ndp_flows_load(const ndp_flows *f, const ndp_cluster *c, const ndp_rank_map *m, int level,
                                  double *loads);

#endif
