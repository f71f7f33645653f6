/* A topology in the making, and in words. Inside cluster. */
#ifndef NDP_CLUSTER_TOPOLOGY_TEXT_H
#define NDP_CLUSTER_TOPOLOGY_TEXT_H

#include "cluster/group_timing.h"
#include "cluster/host_links.h"

enum { NDP_TOPOLOGY_HOSTS = 1024 };

typedef struct ndp_topology_run {
    ndp_transport *transport; /* borrowed */
    const ndp_topology_opts *opts;
    ndp_comm *world;
    ndp_world_hosts hosts;
    /* Of rank 0's node; unlike: another one differs. */
    int sockets, cores, gpus, nics;
    double memory_bytes;
    bool unlike;
    double *rates; /* by rank: fp32 operations per second */
    ndp_device_facts facts;
    ndp_efficiency efficiency;
    ndp_host_links links;
    int *node_of_host, rack_size; /* nodes of the cluster, in the order of racks */
    ndp_cluster cluster;
    ndp_group_timings groups;
    ndp_str device_misses, group_misses;
    double seconds;
} ndp_topology_run;

/* What the hosts' NICs pass, the median. */
double ndp_topology_nic(const ndp_host_links *l);
/* What was found, as lines for people. */
void ndp_topology_describe(const ndp_topology_run *t, ndp_str *out);

#endif
