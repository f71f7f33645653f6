/* A thread of each rank of `mpi` that looks at the processes of the other ranks on its host, whatever the rank itself
 * does: it waits, computes, tokenizes, or is inside MPI_Init or MPI_Finalize, which have no limit. (The ranks of `shm`
 * are looked at by their launcher, launch/host_ranks.c.)
 *
 * A rank that is stopped is named at once, by one rank of the host. One that has died, or has been stopped for longer
 * than a wait may last, is *found*: the waits of this rank return that error (ndp_lookout_check), and it reports it as
 * any other, as it does where another host is gone (host_link.h). If it is in no wait for SAYS_SECONDS the thread
 * reports it, and ends the process if the rank does not. */
#ifndef NDP_COMM_WATCH_LOOKOUT_H
#define NDP_COMM_WATCH_LOOKOUT_H

#include "comm/watch/host_link.h"

typedef struct ndp_lookout ndp_lookout;

/* Before MPI_Init. `limit`: as of a wait. Until the ranks are connected it looks at what the same process has started.
 */
ndp_status ndp_lookout_begin(int rank, double limit, ndp_lookout **out);
/* The ranks have joined: it looks at those whose processes are in the health record of this host, if there are any, and
 * at `link`, which it takes over (NULL: none). `t` is borrowed until the end. */
ndp_status ndp_lookout_connect(ndp_lookout *l, ndp_transport *t, ndp_host_link *link);
/* This rank is about to end, in a way that others hear of. NULL is fine. */
void ndp_lookout_part(ndp_lookout *l);
/* This rank has come out of MPI_Init; or it goes into MPI_Finalize. These two have no limit of their own. NULL is fine.
 */
void ndp_lookout_enter(ndp_lookout *l, bool finalize);
/* NULL is fine. */
void ndp_lookout_end(ndp_lookout *l);

/* NDP_ECOMM: what was found. OK for a transport without a lookout. */
ndp_status ndp_lookout_check(const ndp_transport *t);
/* After an error before the ranks have joined, which the caller is to report: does not return if the thread has said
 * why the run ends, and is to end the process. */
void ndp_lookout_yield(ndp_lookout *l);
/* Whether this rank's own error is to be reported by its caller: the thread has not done so. */
bool ndp_lookout_lets_report(const ndp_transport *t);

#endif
