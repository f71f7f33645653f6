/* What the plugin ndp_nccl.so exports: calls of NCCL on a stream of the device. The plugin knows nothing of this
 * library, which finds it as it finds ndp_mpi.so; the plugin finds NVIDIA's libnccl.so.2.
 *
 * Functions return NULL, or what failed and NCCL's own words (borrowed until the thread's next call). Communicators do
 * not block: after each call on one, `comm_poll` until it is ready, before the next call on it. */
#ifndef NDP_COMM_NCCL_NCCL_API_H
#define NDP_COMM_NCCL_NCCL_API_H

#include <stdbool.h>
#include <stdint.h>

#define NDP_NCCL_API_VERSION 2
#define NDP_NCCL_API_SYMBOL "ndp_nccl_plugin"

enum { NDP_NCCL_ID_BYTES = 128 };

/* One of the messages that an exchange moves: bytes to `peer` (send) or from it (recv; the other is NULL). */
typedef struct ndp_nccl_message {
    const void *send;
    void *recv;
    int64_t bytes;
    int peer;
} ndp_nccl_message;

typedef struct ndp_nccl_api {
    int version;
    /* Loads the library, once a process. *number: its version, 22809 for 2.28.9. */
    const char *(*load)(int *number);
    const char *(*unique_id)(void *out);
    /* Starts to connect `count` ranks that have the same id. *out is set even while this is in progress. */
    const char *(*comm_init)(const void *id, int count, int rank, const char *name, void **out);
    /* Collective over `parent`, on which nothing is under way: a communicator of those that call it with `member`, in
     * the order of `rank`. *out is NULL for the others. Poll *out, and the parent where it is NULL. */
    const char *(*comm_split)(void *parent, bool member, int rank, const char *name, void **out);
    /* *ready: nothing is in progress. An error that the communicator has met since is returned here. */
    const char *(*comm_poll)(void *comm, bool *ready);
    /* Collective: its operations end. Poll until it is ready, then release. */
    const char *(*comm_finalize)(void *comm);
    void (*comm_release)(void *comm);
    /* Ends the operations of `n` communicators, also those that run, and releases what NCCL has. It may wait for the
     * device, on which an operation of a communicator that is not among them would go on: all that may hang belong into
     * one call. comm_release follows. */
    void (*comm_abort)(void *const *comms, int n);

    /* Collectives. count: elements of one rank's part; type: an ndp_dtype. */
    const char *(*all_gather)(void *comm, void *stream, const void *in, void *out, int64_t count, int type);
    const char *(*reduce_scatter)(void *comm, void *stream, const void *in, void *out, int64_t count, int type);
    const char *(*all_reduce)(void *comm, void *stream, const void *in, void *out, int64_t count, int type, bool max);
    const char *(*broadcast)(void *comm, void *stream, void *buffer, int64_t bytes, int root);
    /* All messages as one operation, in which none waits for another. Those of a pair of ranks match in order. */
    const char *(*exchange)(void *comm, void *stream, const ndp_nccl_message *messages, int n);
} ndp_nccl_api;

#endif
