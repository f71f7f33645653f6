/* The start of the `mpi` transport: which rank is on which node, and which ranks share memory. */
#ifndef NDP_COMM_MPI_MPI_BOOTSTRAP_H
#define NDP_COMM_MPI_MPI_BOOTSTRAP_H

#include "comm/mpi/mpi_api.h"
#include "comm/node/node_memory.h"
#include "comm/watch/health.h"
#include "comm/watch/journal.h"
#include "comm/watch/lookout.h"

typedef struct ndp_mpi_transport {
    ndp_transport base;
    const ndp_mpi_api *api;
    bool ours;            /* MPI is ours to finalise */
    ndp_comm *world;      /* by MPI alone */
    int *host_of;         /* as base.host_of */
    int *node_of;         /* by world rank: the lowest rank with which it shares memory */
    ndp_host_name *hosts; /* NULL: all ranks are on one host */
    uint32_t numbered;    /* communicators created whose group begins with this rank */
    bool on_node;         /* the ranks of this node share memory */
    ndp_node_memory node; /* if on_node; else without a file */
    ndp_health *private_; /* the health record if not on_node, and the journals */
    ndp_journal *journals;
    ndp_lookout *lookout; /* from before the ranks join to their end; NULL: there is one rank */
    char note[400];       /* why this rank cannot share memory */
} ndp_mpi_transport;

/* Waits for an operation whose begin returned `st`. */
static inline ndp_status ndp_mpi_exchange(ndp_status st, ndp_work *w) { return st == NDP_OK ? ndp_wait(w) : st; }

/* Address space: a rank touches only the pages of its own. */
static inline size_t ndp_mpi_journal_bytes(const ndp_mpi_transport *t) {
    return (size_t)t->base.world * sizeof(ndp_journal);
}

/* A health record and journals of this rank alone: until it is connected to the others, and where memory is not shared.
 */
ndp_status ndp_mpi_private_health(ndp_mpi_transport *t);
/* Collective over t->world. node: the lowest rank of this rank's node; wanted: memory is to be shared. Fills in the
 * fields of `t` that depend on other ranks. If memory cannot be shared, that is not an error: t->base.note says why. */
ndp_status ndp_mpi_bootstrap(ndp_mpi_transport *t, int node, bool wanted);
/* Collective over t->world, after that: the lowest ranks of the hosts tell each other where they listen. */
ndp_status ndp_mpi_connect_lookout(ndp_mpi_transport *t);

#endif
