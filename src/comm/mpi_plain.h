/* Operations by MPI alone: between nodes, and for memory that peers cannot reach. MPI moves bytes; sums are made here,
 * in rank order, so that the bits are those of every other transport: a reduce_scatter is an all_to_all of the parts
 * and a sum (what it would send anyway), an all_reduce that and an all_gather. */
#ifndef NDP_COMM_MPI_PLAIN_H
#define NDP_COMM_MPI_PLAIN_H

#include "comm/mpi_api.h"
#include "comm/shm.h"

/* Memory for what MPI brings before it is summed; kept for the next operation. */
typedef struct ndp_mpi_scratch {
    void *data;
    size_t bytes;
} ndp_mpi_scratch;

typedef struct ndp_mpi_plain {
    const ndp_mpi_api *api;
    void *comm; /* MPI's communicator */
    ndp_mpi_scratch scratch[NDP_SHM_OUTSTANDING];
    void **parts; /* [count] */
} ndp_mpi_plain;

ndp_status ndp_mpi_plain_init(ndp_mpi_plain *p, const ndp_mpi_api *api, ndp_group group);
/* quiet: MPI is not told, since peers may be gone. */
void ndp_mpi_plain_release(ndp_mpi_plain *p, bool quiet);

/* w->sequence is set; at most NDP_SHM_OUTSTANDING collectives are outstanding. */
ndp_status ndp_mpi_plain_begin(ndp_mpi_plain *p, ndp_work *w);
ndp_status ndp_mpi_plain_wait(ndp_mpi_plain *p, ndp_work *w);

#endif
