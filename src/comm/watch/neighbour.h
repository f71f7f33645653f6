/* A rank of this host as another process sees it in /proc: it runs, is stopped, or has ended. Used by the launcher of
 * `shm`, whose children the ranks are, and by the ranks of `mpi` for each other (lookout.h).
 *
 * A rank that gets a hundredth of a core runs. One that is stopped (by SIGSTOP, Ctrl-Z, a debugger, a batch system that
 * suspends it) may go on at any time, and then nothing has happened. */
#ifndef NDP_COMM_WATCH_NEIGHBOUR_H
#define NDP_COMM_WATCH_NEIGHBOUR_H

#include "base/child.h"

typedef struct ndp_neighbour {
    pid_t process;
    uint64_t started; /* when that process began; 0: taken from the first look */
    double stopped;   /* since when it is stopped; 0: it is not */
    double looked;    /* when it was looked at last */
    bool told;        /* that it is stopped */
} ndp_neighbour;

typedef enum ndp_neighbour_news {
    NDP_NEIGHBOUR_SAME,
    NDP_NEIGHBOUR_STOPPED,      /* for NDP_STOPPED_SECONDS; once */
    NDP_NEIGHBOUR_GOES_ON,      /* after it was told to be stopped */
    NDP_NEIGHBOUR_STOPPED_LONG, /* for longer than `limit` */
    NDP_NEIGHBOUR_ENDED,
} ndp_neighbour_news;

#define NDP_STOPPED_SECONDS 0.4 /* a debugger that attaches stops a process for less */
#define NDP_LOOK_SECONDS 0.2    /* from one look to the next */

/* Looks at the process; a time without a look, as while this process was itself stopped, does not count. */
NDP_API ndp_neighbour_news ndp_neighbour_look(ndp_neighbour *n, double now, double limit);
/* "rank 3 on node-b (process 71)"; host NULL: all are on one. Returns `out`. */
char *ndp_neighbour_name(int rank, const char *host, pid_t process, char *out, size_t size);
/* The line for news other than SAME and ENDED; who: as above. Returns `out`. */
char *ndp_neighbour_text(ndp_neighbour_news news, const ndp_neighbour *n, const char *who, double limit, char *out,
                         size_t size);

#endif
