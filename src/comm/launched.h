/* Which launcher started this process, according to its environment. */
#ifndef NDP_COMM_LAUNCHED_H
#define NDP_COMM_LAUNCHED_H

#include "comm/comm.h"

/* True when ndp_launch started this process as a rank of a world on one host, without mpirun. */
bool ndp_launched_on_host(int *ranks);

/* True for a task of an srun that offers no PMI, by which MPI would find the other tasks. Their number in *tasks. */
bool ndp_launched_without_pmi(int *tasks);

#endif
