/* Which launcher started this process, according to its environment. */
#ifndef NDP_COMM_LAUNCHED_H
#define NDP_COMM_LAUNCHED_H

#include "comm/comm.h"
#include <sys/types.h>

/* True when ndp_launch started this process as a rank of a world on one host, without mpirun. */
bool ndp_launched_on_host(int *ranks);

/* True for a task of an srun that offers no PMI, by which MPI would find the other tasks. Their number in *tasks. */
bool ndp_launched_without_pmi(int *tasks);
/* Whether this process is a task of srun, which no mpirun has started inside of it; *tasks: of how many. */
bool ndp_launched_by_srun(int *tasks);
/* A process that a launcher has started as a rank. */
typedef struct ndp_sibling {
    int rank;
    pid_t process;
} ndp_sibling;

/* Those that `parent` has started: mpirun, its daemon, srun. Returns how many, at most `most`; none behind a script. */
int ndp_launched_children(pid_t parent, ndp_sibling *out, int most);

#endif
