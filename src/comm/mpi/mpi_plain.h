/* Operations by MPI alone: between nodes, and for memory that peers cannot reach. MPI moves bytes; sums are made here,
 * in rank order, so that the bits are those of every other transport: a reduce_scatter is an all_to_all of the parts
 * and a sum (what it would send anyway), an all_reduce that and an all_gather. */
#ifndef NDP_COMM_MPI_MPI_PLAIN_H
#define NDP_COMM_MPI_MPI_PLAIN_H

#include "comm/mpi/mpi_agree.h"
#include "comm/node/shm.h"

/* Memory for what MPI brings before it is summed; kept for later operations. */
typedef struct ndp_mpi_scratch {
    void *data;
    size_t bytes;
} ndp_mpi_scratch;

/* A collective that was begun and is not complete. */
typedef struct ndp_mpi_pending {
    ndp_work work;
    bool spread; /* an all_reduce in its second half: the parts are summed and gathered */
    ndp_mpi_scratch scratch;
    ndp_mpi_vote vote;
    bool agreed; /* all ranks bring the same */
} ndp_mpi_pending;

/* One rank's handle. Collectives complete in the order of their begins, whichever this rank waits for. */
typedef struct ndp_mpi_plain {
    ndp_duty duty;
    const ndp_mpi_api *api;
    ndp_comm *base;
    void *comm;   /* MPI's communicator: its operations meet in the order of the begins */
    void *second; /* another of the same ranks for second halves: they meet in the order in which first halves end */
    uint32_t begun, ended, waited;
    int messages;           /* begun and not waited for */
    uint32_t *sent;         /* [count]: messages begun to each member */
    uint32_t *received;     /* [count]: messages of each member that have arrived */
    ndp_mpi_hashes *hashes; /* [NDP_SHM_OUTSTANDING x count] */
    ndp_mpi_pending pending[NDP_SHM_OUTSTANDING];
    void **parts; /* [count] */
} ndp_mpi_plain;

/* Collective over the group of `c`. */
ndp_status ndp_mpi_plain_init(ndp_mpi_plain *p, const ndp_mpi_api *api, ndp_comm *c);
/* quiet: MPI is not told, since peers may be gone. */
void ndp_mpi_plain_release(ndp_mpi_plain *p, bool quiet);

/* At most NDP_SHM_OUTSTANDING collectives are outstanding, and are waited for in the order of their begins. */
ndp_status ndp_mpi_plain_begin(ndp_mpi_plain *p, ndp_work *w);
ndp_status ndp_mpi_plain_wait(ndp_mpi_plain *p, ndp_work *w);

#endif
