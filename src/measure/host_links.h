/* The links between the hosts of a world, measured by one rank of each and by all, and what follows from that: which
 * hosts share a switch, and what joins these. */
#ifndef NDP_MEASURE_HOST_LINKS_H
#define NDP_MEASURE_HOST_LINKS_H

#include "measure/probe.h"
#include "measure/world_hosts.h"

/* Bytes per second and direction; 0: not measured. */
typedef struct ndp_host_links {
    int n;                         /* hosts */
    double *together;              /* [n][n] from host i to host k, while all other hosts are in such pairs */
    double *latency;               /* [n][n] seconds */
    double *alone;                 /* [n] the best link of a host while all others are silent */
    double *streams;               /* [n] of the same link, when all ranks of both hosts use it */
    double inside, inside_latency; /* between two ranks of a host, in pairs of which all are busy */
    int *rack_of;                  /* [n] */
    int racks;                     /* 1: nothing joins them but the hosts' own links */
    double trunk;                  /* from a rack to the others, all of its hosts at once */
} ndp_host_links;

/* Measures all of it, with messages of `seconds` at least. Up to 16 hosts every pair is measured, else log2(n) of each
 * host. Collective over the world; all ranks get the same. NDP_ENOMEM, NDP_ECOMM. The caller releases it, unless this
 * fails. */
NDP_API ndp_status ndp_host_links_measure(ndp_comm *world, const ndp_world_hosts *hosts, double seconds,
                                          ndp_host_links *out);
void ndp_host_links_release(ndp_host_links *l);

/* Room for n hosts, zeroed. NDP_ENOMEM. */
NDP_API ndp_status ndp_host_links_init(int n, ndp_host_links *out);
/* What a host's NICs pass. */
double ndp_host_links_nic(const ndp_host_links *l, int host);
/* host_racks.c: sets rack_of and racks, in the order of their first hosts, from together and alone. Hosts are together
 * while most links between them pass what a rank of the hosts does although all hosts are busy; where a trunk is shared
 * they do not. NDP_ENOMEM. */
NDP_API ndp_status ndp_host_links_group(ndp_host_links *l);
/* The hosts that a host is paired with in round `round` of `rounds`; -1: none. */
int ndp_host_round_peer(int hosts, int round, int host);
int ndp_host_rounds(int hosts);

#endif
