/* Which hosts a world has, and which of its ranks are on which. */
#ifndef NDP_CLUSTER_HOST_LIST_H
#define NDP_CLUSTER_HOST_LIST_H

#include "comm/comm.h"

enum { NDP_HOST_TEXT = 64 };
typedef struct ndp_host_list {
    int n, world;
    int *of;                      /* by rank: its host; owned */
    char (*names)[NDP_HOST_TEXT]; /* in the order of their first ranks; owned */
} ndp_host_list;

/* By the names that the hosts have. Collective over the world. NDP_ENOMEM, NDP_ECOMM. */
NDP_API ndp_status ndp_host_list_read(ndp_comm *world, ndp_host_list *out);
/* The same from the name of each rank's host. */
NDP_API ndp_status ndp_host_list_take(const char (*of_rank)[NDP_HOST_TEXT], int world, ndp_host_list *out);
void ndp_host_list_release(ndp_host_list *h);

#endif
