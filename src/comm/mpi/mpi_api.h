/* What the plugin ndp_mpi.so exports: MPI as one table of bytes in motion. The plugin knows nothing of this library and
 * the library nothing of MPI; sums are made here, in rank order, from what MPI brought.
 *
 * Functions return NULL, or what MPI said (borrowed until the next call). A request is 0 once it is complete. */
#ifndef NDP_COMM_MPI_MPI_API_H
#define NDP_COMM_MPI_MPI_API_H

#include <stdint.h>

#define NDP_MPI_API_VERSION 3
#define NDP_MPI_API_SYMBOL "ndp_mpi_plugin"

typedef struct ndp_mpi_world {
    int rank, size;
    int node; /* the lowest rank of this rank's node */
    int ours; /* MPI was initialised by us, so it is ours to finalise */
} ndp_mpi_world;

typedef struct ndp_mpi_api {
    int version;
    const char *(*init)(ndp_mpi_world *out);
    const char *(*library)(void); /* "Open MPI v4.1.4" */
    void (*finalize)(void);
    void (*abort)(int code);
    /* Collective over the members base, base + stride, ... alone. */
    const char *(*comm_create)(int base, int stride, int count, void **out);
    void (*comm_destroy)(void *comm);
    const char *(*barrier)(void *comm, uint64_t *request);
    /* `bytes` are one rank's part; in == NULL: it lies at its place in `out`. */
    const char *(*all_gather)(void *comm, const void *in, void *out, int64_t bytes, uint64_t *request);
    const char *(*all_to_all)(void *comm, const void *in, void *out, int64_t bytes, uint64_t *request);
    const char *(*broadcast)(void *comm, void *buffer, int64_t bytes, int root, uint64_t *request);
    const char *(*send)(void *comm, const void *buffer, int64_t bytes, int to, int tag, uint64_t *request);
    const char *(*recv)(void *comm, void *buffer, int64_t bytes, int from, int tag, uint64_t *request);
    const char *(*test)(uint64_t *request, int *done);
    /* Whether a message that nobody receives yet is there, whose and with which tag. Lets MPI move what has been begun:
     * it does only while it is called. */
    const char *(*probe)(void *comm, int *there, int *from, int *tag);
} ndp_mpi_api;

#endif
