/* The ranks of a job, for the commands that run on them: in this process, as processes that this one launches, or as
 * one rank of a world that somebody launched. */
#ifndef NDP_CLI_RANKS_H
#define NDP_CLI_RANKS_H

#include "cli/cli.h"

#include <stdatomic.h>

typedef struct cli_ranks {
    int argc; /* of the command: launched ranks get the same */
    char **argv;
    const char *command;  /* "train" */
    const char *hostfile; /* NULL: this host, or what the batch system gives */
    bool debug;
    int restarts;                      /* so often launched ranks that die are launched again, with --resume */
    bool saves;                        /* a signal lets the body finish its step (`stop`); else it ends the process */
    bool live;                         /* rank 0 draws a live line (progress.h) on the terminal */
    const volatile sig_atomic_t *stop; /* set while ranks of this process run, if it saves; else NULL */
    /* The work of a rank, collective. Reports nothing on failure: that is done here, once for all ranks. */
    ndp_status (*body)(ndp_world *w, void *user);
    /* Makes room on the terminal for an error of `rank`; may be NULL. */
    void (*clear)(void *user, int rank);
    void *user;
    atomic_bool joined, reported; /* a rank of this process came to its body; its error was written */
    atomic_bool by_mpi;           /* and its world is one of mpirun's */
} cli_ranks;

/* Runs the job; the exit code. */
int cli_ranks_run(cli_ranks *r, const ndp_config *c);
/* An error before the ranks met, which most likely all of them have: one writes it. The exit code. */
int cli_fail_early(ndp_status st, bool debug);

#endif
