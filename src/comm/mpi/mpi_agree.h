/* Whether ranks that cannot look into each other's memory bring the same operation.
 *
 * With every collective by MPI goes an all_gather of 16 bytes a rank, hashes of its record and of its name. That is the
 * cost: one small collective more, which travels beside the data. Only when they differ, the first rank and the first
 * that differs from it send their records to all, so that every rank can name both. */
#ifndef NDP_COMM_MPI_MPI_AGREE_H
#define NDP_COMM_MPI_MPI_AGREE_H

#include "comm/watch/journal.h"
#include "comm/mpi/mpi_api.h"

typedef struct ndp_mpi_hashes {
    uint64_t operation, name; /* name: 0 when there is none */
} ndp_mpi_hashes;

/* Of one operation. */
typedef struct ndp_mpi_vote {
    ndp_mpi_hashes mine, *all; /* [count] */
    uint64_t request;
    ndp_record record;
} ndp_mpi_vote;

typedef struct ndp_mpi_agree {
    const ndp_mpi_api *api;
    ndp_comm *base;
    void *comm;   /* of the operations: hashes go in the order of the begins */
    void *second; /* records go as messages here, where there are no others */
} ndp_mpi_agree;

/* NULL, or what MPI said. */
const char *ndp_mpi_vote_begin(const ndp_mpi_agree *a, ndp_mpi_vote *v, const ndp_record *r);
/* *agreed once all hashes are here and equal; NDP_ECOMM naming two ranks when they differ. Does not wait for hashes. */
ndp_status ndp_mpi_vote_look(const ndp_mpi_agree *a, ndp_mpi_vote *v, bool *agreed);

#endif
