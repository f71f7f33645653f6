/* Collectives of ranks that can read and write each other's memory: threads of one process, or processes of one node
 * that map one file. shm.c has the protocol. */
#ifndef NDP_COMM_NODE_SHM_H
#define NDP_COMM_NODE_SHM_H

#include "comm/watch/journal.h"
#include "comm/watch/wait.h"

enum { NDP_SHM_OUTSTANDING = NDP_MOST_COLLECTIVES, NDP_SHM_SLOTS = 2 * NDP_SHM_OUTSTANDING, NDP_SHM_INLINE = 1024 };

/* An address that is valid on every rank of the node. */
typedef struct ndp_ref {
    int32_t segment; /* < 0: memory that peers cannot access */
    int64_t offset;
} ndp_ref;

/* How the ranks of a transport refer to each other's memory. */
typedef struct ndp_space {
    void *context;
    ndp_ref (*locate)(void *context, const void *data, size_t bytes);
    /* The same address in this process. */
    ndp_status (*resolve)(void *context, ndp_ref ref, void **out);
    /* Memory that peers can access, for the copy of a buffer that they cannot; until `unstage`. NULL: they can access
     * everything. */
    ndp_status (*stage)(void *context, size_t bytes, ndp_ref *ref, void **out);
    void (*unstage)(void *context, void *data);
} ndp_space;

typedef struct ndp_shm_slot {
    ndp_record operation;
    bool in_place; /* all_gather: `in` is at its place in `out` */
    ndp_ref in, out;
    ndp_mark ready, finished; /* on a device (lane.h) */
    _Alignas(64) unsigned char data[NDP_SHM_INLINE];
} ndp_shm_slot;

/* What one rank publishes to the others. */
typedef struct ndp_shm_rank {
    ndp_gate arrived, finished;
    ndp_shm_slot slot[NDP_SHM_SLOTS];
} ndp_shm_rank;

/* An operation that this rank has begun and not yet waited for. */
typedef struct ndp_shm_pending {
    ndp_work work;
    bool shared;  /* this rank's share is done, and peers access its buffers: wait for their shares as well */
    void *staged; /* the copy of `in` that peers access in its place; NULL: none */
} ndp_shm_pending;

/* One rank's handle on its group. `block` is shared: a ndp_shm_rank for each rank, zeroed. */
typedef struct ndp_shm {
    ndp_progress_fn progress;
    ndp_comm *comm;
    ndp_shm_rank *block;
    const ndp_space *space;
    uint32_t begun, executed, waited; /* executed: this rank's share is done */
    ndp_shm_pending pending[NDP_SHM_OUTSTANDING];
    void **in; /* scratch: the peers' buffers of one operation */
} ndp_shm;

ndp_status ndp_shm_init(ndp_shm *s, ndp_comm *c, ndp_shm_rank *block, const ndp_space *space);
void ndp_shm_release(ndp_shm *s);

ndp_status ndp_shm_begin(ndp_shm *s, ndp_work *w);
ndp_status ndp_shm_wait(ndp_shm *s, ndp_work *w);

#endif
