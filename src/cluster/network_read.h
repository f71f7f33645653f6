/* The section `network` of cluster.yaml. Inside this room only. */
#ifndef NDP_CLUSTER_NETWORK_READ_H
#define NDP_CLUSTER_NETWORK_READ_H

#include "cluster/cluster_table.h"

/* Reads the levels into a cluster whose `nodes` are known, and checks that they fit. What is read belongs to the
 * cluster even if this fails. */
NDP_API ndp_status ndp_network_read(ndp_yaml *y, struct fy_node *node, ndp_cluster *c);

#endif
