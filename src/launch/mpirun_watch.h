/* Inside the launch room: what the parent of an mpirun sees of its ranks while it waits for it. */
#ifndef NDP_LAUNCH_MPIRUN_WATCH_H
#define NDP_LAUNCH_MPIRUN_WATCH_H

#include "comm/launched.h"
#include <signal.h>

enum { NDP_WATCHED_RANKS = 256, NDP_LOST_HOSTS = 8 };

typedef struct ndp_mpirun_watch {
    pid_t mpirun;
    int world;
    bool here;                            /* all of the world's ranks are on this host */
    int errors;                           /* the end of a pipe: what mpirun and the ranks write to stderr */
    int events;                           /* of epoll, which tells ends in their order */
    ndp_sibling ranks[NDP_WATCHED_RANKS]; /* that it has started on this host */
    int ends[NDP_WATCHED_RANKS];   /* process descriptors by rank, of `open` processes; -1: the system has none */
    pid_t open[NDP_WATCHED_RANKS]; /* 0: none yet */
    int n;
    int first;      /* of these, the one that ended first; -1: none yet, or it is not certain */
    bool ended;     /* some of them */
    bool printed;   /* something that is no warning, nor mpirun's own word of a rank's end, was written */
    bool boxed;     /* the line is such a word */
    bool said;      /* a rank has said why */
    bool ours;      /* a line was ndparallel's, of any rank */
    double failed;  /* when a rank said that the run has failed, or mpirun that it lost a host; 0: not yet */
    bool left;      /* it is when the last rank had ended, which said nothing */
    bool killed;    /* mpirun did not end after that, and was killed */
    double stopped; /* when ranks said that a stop has ended the run; 0: not yet */
    char line[512]; /* the beginning of the line that is being written */
    int length;
    char lost[NDP_LOST_HOSTS][256]; /* hosts that ranks or mpirun have lost, by their own names */
    int n_lost;
    /* Set after begin. How long the daemons wait before they kill; where a host is lost of which no rank has said it:
     */
    int stop_seconds;
    void (*lose)(const void *user, const char *host);
    const void *user;
    bool told;     /* it was called */
    char dead[64]; /* "rank 2 (process 71)", which its peers have seen die before any other; empty: none */
} ndp_mpirun_watch;

/* `errors`: not blocking. `here`: all ranks are on this host. */
void ndp_mpirun_watch_begin(ndp_mpirun_watch *w, pid_t mpirun, int world, bool here, int errors);
/* Waits for the end of mpirun, and returns its exit code; 130 where a stop has ended the run, after which ranks of
 * `ndparallel` end with 0 (cli/ranks.c). What ranks write to stderr is passed on. `stop`: once it is
 * non-zero, mpirun gets SIGUSR1 every second. */
int ndp_mpirun_watch_wait(ndp_mpirun_watch *w, const volatile sig_atomic_t *stop);
/* "rank 1 (process 71)" if it is certain which rank ended first, as its peers have said so, or as all of them were seen
 * here, else "a rank". */
const char *ndp_mpirun_watch_first(const ndp_mpirun_watch *w, char out[64]);

#endif
