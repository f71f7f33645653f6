/* A connection between two hosts, by which each notices that the other is gone. The lowest rank of a host connects to
 * that of the next host, so the hosts form a ring and two of them know of each. Nothing is sent on it but the kernel's
 * own probes: a host answers them while its ranks compute, are stopped or get no core, and does not when it is switched
 * off or its link is down. Where no connection comes about (a firewall), the time limit of waits remains. */
#ifndef NDP_COMM_WATCH_HOST_LINK_H
#define NDP_COMM_WATCH_HOST_LINK_H

#include "comm/impl.h"

enum { NDP_LOST_SECONDS = 30, NDP_HOST_ADDRESSES = 8 };

/* Where the lowest rank of a host listens; zeros: nowhere. */
typedef struct ndp_host_address {
    uint64_t token;
    uint32_t address[NDP_HOST_ADDRESSES]; /* IPv4, in network order; 0: no more */
    uint32_t port;                        /* also in network order */
} ndp_host_address;

typedef struct ndp_host_link ndp_host_link;

/* Listens. *out NULL: this host has no address but its own loop, or no socket. */
void ndp_host_link_listen(ndp_host_address *own, ndp_host_link **out);
/* The host that this one connects to, and the one that connects to it, by their lowest ranks. NULL is fine. */
void ndp_host_link_connect(ndp_host_link *l, const ndp_host_address *to, int next, int before);

typedef enum ndp_link_news { NDP_LINK_SAME, NDP_LINK_LOST, NDP_LINK_ENDED } ndp_link_news;

/* Goes on with what is not connected, and looks at what is. *rank: the lowest rank of the host that is lost, or that
 * rank has ended without a farewell. Never waits. */
ndp_link_news ndp_host_link_look(ndp_host_link *l, int *rank);
/* Says farewell to both: this rank ends, and that is no loss. Any thread. NULL is fine. */
void ndp_host_link_part(ndp_host_link *l);
/* NULL is fine. */
void ndp_host_link_close(ndp_host_link *l);

#endif
