/* The start of the `mpi` transport: who is where, who shares memory with whom. */
#ifndef NDP_COMM_MPI_MPI_MEET_H
#define NDP_COMM_MPI_MPI_MEET_H

#include "comm/watch/journal.h"
#include "comm/mpi/mpi_api.h"
#include "comm/node/node.h"
#include "comm/watch/wait.h"

typedef struct ndp_mpi_transport {
    ndp_transport base;
    const ndp_mpi_api *api;
    bool ours;            /* MPI is ours to finalise */
    ndp_comm *world;      /* MPI alone */
    int *node_of;         /* by world rank: the lowest of those with which it shares memory */
    ndp_host_name *hosts; /* NULL: all ranks are on one */
    uint32_t numbered;    /* communicators whose group this rank is the first of */
    bool on_node;         /* memory of this node's ranks is shared */
    ndp_node node;        /* when on_node; else without a file */
    ndp_health *private_; /* the health record when it is not, and the journals */
    ndp_journal *journals;
    char note[400]; /* why this rank cannot share memory */
} ndp_mpi_transport;

/* Waits for what was begun with `st`. */
static inline ndp_status ndp_mpi_exchange(ndp_status st, ndp_work *w) { return st == NDP_OK ? ndp_wait(w) : st; }

/* Address space: a rank takes the pages of its own alone. */
static inline size_t ndp_mpi_journal_bytes(const ndp_mpi_transport *t) {
    return (size_t)t->base.world * sizeof(ndp_journal);
}

/* A health record and journals for this rank alone: until it has met the others, and where memory is not shared. */
ndp_status ndp_mpi_private_health(ndp_mpi_transport *t);
/* Collective over t->world. `node`: equal on ranks of one node, the lowest of them; wanted: memory is to be shared.
 * Fills in what of `t` depends on the others. That memory cannot be shared is no error: t->base.note says why. */
ndp_status ndp_mpi_meet(ndp_mpi_transport *t, int node, bool wanted);

#endif
