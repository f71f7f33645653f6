/* The watchdog: looks at the journals of ranks that a waiting rank can see, and says who holds up whom. */
#ifndef NDP_COMM_WATCH_WATCHDOG_H
#define NDP_COMM_WATCH_WATCHDOG_H

#include "comm/watch/journal.h"

/* What a sleeping rank remembers between its looks; {.next = when to look first}. */
typedef struct ndp_watch {
    double next;           /* when to look again */
    uint32_t waits, looks; /* of the rank on whose gate this one sleeps: its wait, and how often it had looked */
    int member;            /* a plain collective: which of the others is at hand, 0 .. count - 2 */
    bool circled;          /* each of them has been */
    double until;          /* how long this one may be silent */
} ndp_watch;

/* For a rank that sleeps on a gate which `rank` of its node advances, called before the gate is looked at: that rank's
 * wait if it sleeps in it and has run its duties since this was first asked, else 0. What is not reached then will not
 * be while that wait lasts. */
uint32_t ndp_watchdog_asleep(ndp_watch *v, const ndp_transport *t, int rank);

/* For a rank that sleeps where it cannot see who is late: finds a member of the group that has not begun `a`, and notes
 * it in this rank's journal. */
ndp_status ndp_watchdog_search(ndp_watch *v, const ndp_awaited *a, const ndp_work *w, double now);

/* Called now and then by a rank that sleeps in a wait. NDP_ECOMM once it is certain that this rank waits for ranks that
 * wait for it: the message names all of them and where they are. */
ndp_status ndp_watchdog_look(ndp_watch *v, ndp_transport *t, double now);

/* The error of a wait for a rank that has ended. */
ndp_status ndp_watchdog_left(const ndp_work *w, int rank);

/* The error of a wait that lasted longer than the transport's time: who has not come, and where he is; member < 0: as
 * far as ndp_watchdog_search has found it out. */
ndp_status ndp_watchdog_expired(const ndp_work *w, int member);

#endif
