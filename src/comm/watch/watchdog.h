/* The watchdog: while a rank waits, reads the states of others and reports which rank blocks which. watchdog.c has the
 * method. */
#ifndef NDP_COMM_WATCH_WATCHDOG_H
#define NDP_COMM_WATCH_WATCHDOG_H

#include "comm/watch/journal.h"

/* What a waiting rank remembers between two checks; {.next = time of the first check}. */
typedef struct ndp_watchdog {
    double next;          /* time of the next check */
    uint32_t wait, polls; /* of the peer whose gate this rank waits on: its wait, and its polls when first seen there */
    int member;           /* a collective by MPI: the other member that is asked now, 0 .. count - 2 */
    bool circled;         /* each of them has been asked */
    double until;         /* when to go on to the next member if this one stays silent */
} ndp_watchdog;

/* For a rank that waits on a gate of `rank`, a peer of its node; called before the gate is checked. Returns the wait
 * that the peer is inside, if it has run all its progress functions there since the first call, else 0. If the gate is
 * not reached then, it will not be before that wait ends. */
uint32_t ndp_watchdog_peer_wait(ndp_watchdog *v, const ndp_transport *t, int rank);

/* For a rank that waits without a gate: finds a member of the group that has not begun `e`, and enters it in this
 * rank's journal as the one it is blocked on. */
ndp_status ndp_watchdog_find_missing(ndp_watchdog *v, const ndp_expected_op *e, const ndp_work *w, double now);

/* Called now and then by a waiting rank. NDP_ECOMM once it is certain that this rank is part of a cycle of ranks that
 * wait for each other; the message names all of them and their operations. Or what the lookout has found (lookout.h).
 */
ndp_status ndp_watchdog_find_cycle(ndp_watchdog *v, ndp_transport *t, double now);

/* The error of a wait for a rank that has left the run. */
ndp_status ndp_watchdog_left(const ndp_work *w, int rank);

/* The error of a wait beyond the time limit: which rank is missing, its last operation, and which rank it is blocked
 * on. member: of the work's group; < 0: the one that ndp_watchdog_find_missing has found. */
ndp_status ndp_watchdog_timeout(const ndp_work *w, int member);

/* ndp_watchdog_timeout once the time limit is over. It starts at `since`, or when the device of this rank, of the
 * missing one, or of one that this waits for was seen to go on last: a rank whose device computes may be late by as
 * much as it likes. */
ndp_status ndp_watchdog_check_limit(const ndp_work *w, int member, double since, double now);

/* The error of a wait for this rank's device, which has not gone on for `seconds` though it waits for no other rank. */
ndp_status ndp_watchdog_device_timeout(const ndp_transport *host, double seconds);

#endif
