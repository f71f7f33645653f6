/* Whether ranks that cannot read each other's memory begin the same operation.
 *
 * Each collective by MPI carries an all_gather of 16 bytes per rank, hashes of its record and of its name: one small
 * collective more, which travels beside the data. Only if they differ, the first rank and the first that differs from
 * it send their records to all, so that every rank can name both. */
#ifndef NDP_COMM_MPI_MPI_MATCH_H
#define NDP_COMM_MPI_MPI_MATCH_H

#include "comm/mpi/mpi_api.h"
#include "comm/watch/journal.h"

typedef struct ndp_mpi_hashes {
    uint64_t operation, name; /* name: 0 if none was given */
} ndp_mpi_hashes;

/* The comparison of one operation. */
typedef struct ndp_mpi_match {
    ndp_mpi_hashes mine, *all; /* [count] */
    uint64_t request;
    ndp_record record;
} ndp_mpi_match;

typedef struct ndp_mpi_matcher {
    const ndp_mpi_api *api;
    ndp_comm *base;
    void *comm;   /* of the operations: hashes travel in the order of the begins */
    void *second; /* records travel here as messages, where there are no others */
} ndp_mpi_matcher;

/* NULL, or MPI's error text. */
const char *ndp_mpi_match_begin(const ndp_mpi_matcher *a, ndp_mpi_match *m, const ndp_record *r);
/* *agreed once all hashes are here and equal; NDP_ECOMM naming two ranks if they differ. Does not wait for hashes. */
ndp_status ndp_mpi_match_poll(const ndp_mpi_matcher *a, ndp_mpi_match *m, bool *agreed);

#endif
