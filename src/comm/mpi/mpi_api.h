/* What the plugin ndp_mpi.so exports: a table of MPI calls that move bytes. The plugin knows nothing of this library,
 * and the library does not include MPI; sums are made here, in rank order, from the bytes that MPI moved.
 *
 * Functions return NULL, or MPI's error text (borrowed until the next call). A request is 0 once it is complete. */
#ifndef NDP_COMM_MPI_MPI_API_H
#define NDP_COMM_MPI_MPI_API_H

#include <stdint.h>

#define NDP_MPI_API_VERSION 5
#define NDP_MPI_API_SYMBOL "ndp_mpi_plugin"

typedef struct ndp_mpi_world {
    int rank, size;
    int node; /* the lowest rank of this rank's node */
    int ours; /* this plugin initialised MPI and finalises it */
} ndp_mpi_world;

typedef struct ndp_mpi_api {
    int version;
    const char *(*init)(ndp_mpi_world *out);
    const char *(*library)(void); /* "Open MPI v4.1.4" */
    void (*finalize)(void);
    void (*abort)(int code);
    /* Collective over the members base, base + stride, ... only. */
    const char *(*comm_create)(int base, int stride, int count, void **out);
    void (*comm_destroy)(void *comm);
    const char *(*barrier)(void *comm, uint64_t *request);
    /* `bytes`: of one rank's part; in == NULL: it is at its place in `out`. */
    const char *(*all_gather)(void *comm, const void *in, void *out, int64_t bytes, uint64_t *request);
    const char *(*all_to_all)(void *comm, const void *in, void *out, int64_t bytes, uint64_t *request);
    /* counts: how many rows of `bytes` bytes go to each rank, how many come from each, and the first row of each of
     * these parts: four numbers of each rank, borrowed until it is complete. */
    const char *(*all_to_all_rows)(void *comm, const void *in, void *out, int64_t bytes, const int *counts,
                                   uint64_t *request);
    const char *(*broadcast)(void *comm, void *buffer, int64_t bytes, int root, uint64_t *request);
    const char *(*send)(void *comm, const void *buffer, int64_t bytes, int to, int tag, uint64_t *request);
    const char *(*recv)(void *comm, void *buffer, int64_t bytes, int from, int tag, uint64_t *request);
    /* received: the bytes that a receive got, set when it is done; NULL for any other request. */
    const char *(*test)(uint64_t *request, int *done, int64_t *received);
    /* Whether a message is there for which no receive has begun, its source and its tag. Lets MPI move pending data,
     * which it does only while it is called. */
    const char *(*probe)(void *comm, int *there, int *from, int *tag);
} ndp_mpi_api;

#endif
