/* The watchdog: looks at the journals of ranks that a waiting rank can see, and says who holds up whom. */
#ifndef NDP_COMM_WATCHDOG_H
#define NDP_COMM_WATCHDOG_H

#include "comm/journal.h"

enum { NDP_WATCHDOG_RING = 32 };

/* What a sleeping rank remembers between its looks: the ring of ranks that wait for each other, if it is in one. */
typedef struct ndp_watch {
    double next;  /* when to look again */
    int n, looks; /* ranks of the ring; how often it was seen unchanged */
    int rank[NDP_WATCHDOG_RING];
    uint32_t waits[NDP_WATCHDOG_RING], seen[NDP_WATCHDOG_RING];
} ndp_watch;

/* Called now and then by a rank that sleeps in a wait. NDP_ECOMM once it is certain that this rank waits for ranks that
 * wait for it: the message names all of them and where they are. Takes a second or two to be certain. */
ndp_status ndp_watchdog_look(ndp_watch *v, ndp_transport *t, double now);

/* The error of a wait that lasted longer than the transport's time: who has not come, and where he is; member < 0: only
 * the journals can tell. */
ndp_status ndp_watchdog_expired(const ndp_work *w, int member);

#endif
