/* Where ranks start again after a host was lost: the hosts of the hostfile that are left. */
#ifndef NDP_LAUNCH_SPARE_HOSTS_H
#define NDP_LAUNCH_SPARE_HOSTS_H

#include "launch/launch.h"

typedef struct ndp_spare_hosts {
    ndp_host_list list;
    bool *lost;  /* of each host: it is not used again */
    int n_lost;  /* 0: all hosts are as before, and the ranks stay where they are */
    int slots;   /* of the others */
    int a_slot;  /* ranks that a slot takes: 1 or 2 */
    char *names; /* "host node-2 is lost", "hosts node-2, node-3 are lost" */
} ndp_spare_hosts;

typedef struct ndp_spare_seek {
    const char *hostfile;
    int ranks;                /* that need a place */
    const char *const *named; /* hosts that ranks or mpirun have lost, by names that may be others than the list's */
    int n_named;
    bool oversubscribe; /* a slot takes two ranks if it has to */
} ndp_spare_seek;

/* Reads the hostfile anew. Lost is a host that was named, or does not answer now. Where the others have too few slots,
 * one that was named and answers again counts as any other. NDP_EINVAL: a host is lost, and how many ranks another
 * takes is not known. The caller releases *out. */
NDP_API ndp_status ndp_spare_hosts_find(const ndp_spare_seek *s, ndp_spare_hosts *out);
/* Places that are left. */
static inline int ndp_spare_hosts_room(const ndp_spare_hosts *h) { return h->slots * h->a_slot; }
/* The host of each of so many ranks: as in `before` (NULL: they filled the hosts in their order) where that is not
 * lost, else the next free place. NDP_EINVAL: there is no room. `moved`, appended to: "ranks 2-3 start on node-3".
 * *out: ends with NULL, the caller's. */
NDP_API ndp_status ndp_spare_hosts_place(const ndp_spare_hosts *h, int ranks, const char *const *before, ndp_str *moved,
                                         char ***out);
void ndp_spare_hosts_release(ndp_spare_hosts *h);

#endif
