/* A job on a cluster: which links the groups of its ranks use, how long what is sent over them takes, and what the
 * nodes and racks send altogether. Inside plan. */
#ifndef NDP_PLAN_CLUSTER_PLAN_H
#define NDP_PLAN_CLUSTER_PLAN_H

#include "base/json_write.h"
#include "cluster/flows.h"
#include "plan/plan_parts.h"

/* Links of groups that are alike, by the stride and the number of their ranks, which many layouts share. */
typedef struct ndp_known_links {
    struct ndp_known_link *items;
    int n;
    int64_t capacity;
} ndp_known_links;
void ndp_known_links_release(ndp_known_links *k);

typedef struct ndp_cluster_plan {
    const ndp_job *job; /* borrowed */
    ndp_cluster cluster;
    ndp_rank_map map;
    ndp_mesh_facts facts;
    bool rings;              /* collectives run around rings, as NCCL's do; set by the caller */
    ndp_known_links *shared; /* of plans of other layouts on the same map; NULL: none */
    /* Of the group of `rank`, by kind and pattern; known[..]: computed. */
    int rank;
    ndp_group_links links[NDP_GROUPS][NDP_SEND_PATTERNS];
    bool known[NDP_GROUPS][NDP_SEND_PATTERNS];
    /* Of messages of the kind that was asked for last, by the highest level that they cross. */
    ndp_group_links messages[NDP_SEND_PATTERNS][NDP_LINK_LEVELS];
} ndp_cluster_plan;

/* The cluster that the options name, of the first of o->nodes if there are any. */
ndp_status ndp_cluster_plan_find(const ndp_plan_opts *o, ndp_cluster *out);
/* Reads it and puts the ranks on its nodes, one node after the other, or `cyclic`, around them; o->rank is the one that
 * is shown. The caller releases it, unless this fails. NDP_EINVAL: more ranks than devices, or an error of the file. */
NDP_API ndp_status ndp_cluster_plan_open(const ndp_job *j, const ndp_plan_opts *o, ndp_cluster_plan *out);
/* The same cluster and map for another job of as many ranks; borrows both, and is not released. */
ndp_cluster_plan ndp_cluster_plan_of(const ndp_cluster_plan *p, const ndp_job *j, ndp_known_links *shared);
/* Accepts {0}. */
void ndp_cluster_plan_release(ndp_cluster_plan *p);

/* Those that a communication uses: of a message, what is between its two ranks. */
ndp_status ndp_cluster_plan_call_links(ndp_cluster_plan *p, const ndp_mesh *mesh, const ndp_call *c,
                                       const ndp_group_links **out);
/* Bytes per second that a rank's collectives and messages reach where this link alone limits them: the share of its
 * rate that the cluster's `efficiency` states. */
double ndp_cluster_plan_rate(const ndp_cluster_plan *p, const ndp_link_use *u);
/* Seconds of one communication among `ranks` that sends `bytes` out of each: steps x latency + bytes / rate of the
 * slowest link. A sum takes the faster of a ring and a tree (NCCL's; both send as much). 0 without links. */
double ndp_cluster_plan_seconds(const ndp_cluster_plan *p, const ndp_group_links *l, ndp_collective kind, int ranks,
                                double bytes);

/* What all ranks send: builds the program of the first rank of every pipeline stage. The caller releases it. */
NDP_API ndp_status ndp_cluster_plan_flows(const ndp_cluster_plan *p, const ndp_dry_run *d, const ndp_model *m,
                                          ndp_flows *out);
/* What leaves over each link in a step. Appends a table of the levels to `out`, and "links" to the JSON. */
NDP_API ndp_status ndp_cluster_plan_loads(const ndp_cluster_plan *p, const ndp_dry_run *d, const ndp_model *m,
                                          ndp_str *out, ndp_json_out *json);

#endif
