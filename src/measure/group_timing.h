/* Collectives of the groups that layouts have, timed: inside a node, across nodes, all ranks; and the shares of the
 * links' bandwidth that they reach. */
#ifndef NDP_MEASURE_GROUP_TIMING_H
#define NDP_MEASURE_GROUP_TIMING_H

#include "cluster/cluster.h"
#include "comm/comm.h"

enum { NDP_TIMED_SIZES = 4, NDP_TIMED_MOST = 64 };

typedef struct ndp_group_timing {
    char name[64];                 /* "all_gather of 8 ranks on 4 nodes, 1.2 MiB" */
    bool crosses;                  /* nodes */
    double bytes;                  /* that a rank sends */
    double seconds, latency, rate; /* measured; of the links, by the cluster */
} ndp_group_timing;

typedef struct ndp_group_timings {
    int n;
    ndp_group_timing of[NDP_TIMED_MOST];
} ndp_group_timings;

/* Times all_gather, reduce_scatter and all_reduce at four sizes, of about 1, 4, 16 and 64 ms by the cluster's links, on
 * each kind of group that the map has. Collective over the world; all ranks get the same. NDP_ENOMEM, NDP_ECOMM. */
NDP_API ndp_status ndp_group_timings_measure(ndp_transport *t, ndp_comm *world, const ndp_cluster *c,
                                             const ndp_rank_map *m, ndp_group_timings *out);
/* Sets efficiency.links and .nics of the cluster to the medians of the shares of the rate that the two largest sizes
 * reach, at most 1: links that they pass more on than single messages have more bandwidth. Appends a line for each
 * timing that latency + bytes / (rate x efficiency) misses by more than 10%.
 */
void ndp_group_timings_fit(const ndp_group_timings *t, ndp_cluster *c, ndp_str *misses);

#endif
