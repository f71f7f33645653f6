/* A topology in the making, and in words. Inside this room only. */
#ifndef NDP_MEASURE_TOPOLOGY_TEXT_H
#define NDP_MEASURE_TOPOLOGY_TEXT_H

#include "measure/group_timing.h"
#include "measure/host_links.h"

enum { NDP_TOPOLOGY_HOSTS = 1024 };

/* What a rank says of itself: its node's shape, and its device's facts. */
typedef struct ndp_rank_facts {
    int sockets, cores, gpus, nics;
    double memory_bytes;
    ndp_device_facts device; /* without texts */
    char full_name[NDP_DEVICE_NAME];
    ndp_efficiency efficiency;
    ndp_status st; /* of the measurement */
} ndp_rank_facts;

typedef struct ndp_topology_run {
    ndp_transport *transport; /* borrowed */
    const ndp_topology_opts *opts;
    ndp_comm *world;
    ndp_world_hosts hosts;
    ndp_rank_facts first; /* rank 0's, which are the cluster's */
    bool unlike;          /* another node differs */
    double *rates;        /* by rank: fp32 operations per second */
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
/* The same as one line of JSON. Rates are per second; what was not measured is null. */
void ndp_topology_json(const ndp_topology_run *t, ndp_str *out);

#endif
