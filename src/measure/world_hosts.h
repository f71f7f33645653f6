/* Which hosts a world has, and which of its ranks are on which. */
#ifndef NDP_MEASURE_WORLD_HOSTS_H
#define NDP_MEASURE_WORLD_HOSTS_H

#include "comm/comm.h"

enum { NDP_HOST_TEXT = 64 };
typedef struct ndp_world_hosts {
    int n, world;
    int *of;                      /* by rank: its host; owned */
    char (*names)[NDP_HOST_TEXT]; /* in the order of their first ranks; owned */
} ndp_world_hosts;

/* By the names that the hosts have. Collective over the world. NDP_ENOMEM, NDP_ECOMM. */
NDP_API ndp_status ndp_world_hosts_read(ndp_comm *world, ndp_world_hosts *out);
/* The same from the name of each rank's host. */
NDP_API ndp_status ndp_world_hosts_take(const char (*of_rank)[NDP_HOST_TEXT], int world, ndp_world_hosts *out);
void ndp_world_hosts_release(ndp_world_hosts *h);

#endif
