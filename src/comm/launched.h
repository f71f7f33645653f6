/* Which launcher started this process, according to its environment. */
#ifndef NDP_COMM_LAUNCHED_H
#define NDP_COMM_LAUNCHED_H

#include "comm/comm.h"

/* True when ndp_launch started this process as a rank of a world on one host, without mpirun. */
bool ndp_launched_on_host(int *ranks);

#endif
