/* The ranks of a job, for commands that run on them: in this process, as processes that this one launches, or as one
 * rank of a world that was launched. */
#ifndef NDP_CLI_RANKS_H
#define NDP_CLI_RANKS_H

#include "cli/cli.h"

#include <stdatomic.h>

typedef struct cli_ranks {
    int argc; /* of the command; launched ranks get the same arguments */
    char **argv;
    const char *command;           /* "train" */
    const char *hostfile;          /* NULL: this host, or the batch system's hosts */
    const char *const *rank_hosts; /* by rank; NULL: in the hosts' order */
    bool debug;
    int ranks;                         /* how many; 0: as many as the job says */
    int restarts;                      /* how often ranks that die are launched again, with --resume */
    bool oversubscribe, elastic;       /* as in ndp_restart_opts */
    bool saves;                        /* a signal sets `stop`, so that the body can save; else it ends the process */
    bool live;                         /* rank 0 draws a live line (progress.h) on the terminal */
    const volatile sig_atomic_t *stop; /* set while ranks run in this process, if `saves`; else NULL */
    /* The work of a rank; collective. It does not report its errors: cli_ranks_run does, once for all ranks. */
    ndp_status (*body)(ndp_world *w, void *user);
    /* Clears the terminal for an error message of `rank`; may be NULL. */
    void (*clear)(void *user, int rank);
    void *user;
    atomic_bool joined, reported; /* a rank of this process reached its body; its error was printed */
    atomic_bool by_mpi;           /* mpirun started its world */
} cli_ranks;

/* Runs the job and returns the exit code. */
int cli_ranks_run(cli_ranks *r, const ndp_config *c);
/* Reports an error from before the ranks joined, which most likely all of them have: one prints it. Returns the exit
 * code. */
int cli_fail_early(ndp_status st, bool debug);

#endif
