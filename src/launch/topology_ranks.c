/* How many ranks measure a topology. */
#include "launch/launch.h"

ndp_status ndp_topology_ranks(const char *hostfile, int *ranks) {
    NDP_NOT_NULL(ranks);
    ndp_host_list hosts;
    NDP_TRY(ndp_launch_hosts(hostfile, &hosts));
    int n = 0;
    for (int i = 0; i < hosts.n; i++)
        n += hosts.items[i].slots;
    *ranks = hosts.n ? n : 2;
    ndp_host_list_release(&hosts);
    return NDP_OK;
}
