/* Operations by MPI alone, for groups that span nodes or share no memory. MPI only moves bytes. Sums are made here, in
 * rank order, so every transport gives the same bits: a reduce_scatter is an all_to_all of the parts and a sum (it
 * sends no more bytes than MPI's own would), an all_reduce is that and an all_gather. */
#ifndef NDP_COMM_MPI_MPI_PLAIN_H
#define NDP_COMM_MPI_MPI_PLAIN_H

#include "comm/mpi/mpi_match.h"
#include "comm/node/shm.h"

/* Memory for received parts until they are summed; kept for later operations. */
typedef struct ndp_mpi_scratch {
    void *data;
    size_t bytes;
} ndp_mpi_scratch;

/* A collective that has begun and is not complete. */
typedef struct ndp_mpi_pending {
    ndp_work work;
    bool gathering; /* an all_reduce in its second half: the summed parts are gathered */
    ndp_mpi_scratch scratch;
    ndp_mpi_match match;
    bool agreed; /* all ranks have begun the same operation */
} ndp_mpi_pending;

/* One rank's handle. Collectives complete in the order of their begins, whichever this rank waits for. */
typedef struct ndp_mpi_plain {
    ndp_progress_fn progress;
    const ndp_mpi_api *api;
    ndp_comm *base;
    void *comm;   /* MPI's communicator: operations are matched in the order of the begins */
    void *second; /* another one of the same ranks, for second halves: these begin in the order in which first halves
                     end */
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
/* quiet: without MPI calls, since peers may be gone. */
void ndp_mpi_plain_release(ndp_mpi_plain *p, bool quiet);

/* Collectives are waited for in the order of their begins. */
ndp_status ndp_mpi_plain_begin(ndp_mpi_plain *p, ndp_work *w);
ndp_status ndp_mpi_plain_wait(ndp_mpi_plain *p, ndp_work *w);

/* NDP_ECOMM if MPI has said something: `text`, with the operation. */
ndp_status ndp_mpi_check(const ndp_work *w, const char *text);

/* Memory of the operation, until it is complete. NDP_ENOMEM. */
ndp_status ndp_mpi_scratch_take(ndp_mpi_pending *o, size_t bytes, void **out);

/* The two halves of reductions (mpi_reduce.c): begins to move data; sums what has come. o->gathering: a second round
 * has begun, after which the second half comes once more. NDP_ENOMEM, NDP_ECOMM. */
ndp_status ndp_mpi_all_reduce_begin(ndp_mpi_plain *p, ndp_mpi_pending *o);
ndp_status ndp_mpi_all_reduce_end(ndp_mpi_plain *p, ndp_mpi_pending *o);
ndp_status ndp_mpi_reduce_scatter_begin(ndp_mpi_plain *p, ndp_mpi_pending *o);
void ndp_mpi_reduce_scatter_end(ndp_mpi_plain *p, ndp_mpi_pending *o);

#endif
