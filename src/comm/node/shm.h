/* Collectives of ranks that can read and write each other's memory: threads of one process, or processes of one node
 * with mapped segments.
 *
 * Begin publishes this rank's operation (kind, count, where its buffers are) in a ring of slots and advances its
 * `arrived` gate; nothing is copied but what is small. Wait lets all ranks arrive, compares what they brought, and does
 * this rank's share straight on its peers' memory (a rank that waits for another operation does so too, wait.h); where
 * peers read or write this rank's buffers, it then waits until they are done with them (`finished`).
 *
 *   small (at most NDP_SHM_INLINE bytes): the data lie in the slot; every rank computes everything; one meeting
 *   all_gather in a shared buffer, everything in its place: one meeting, nothing moves
 *   all_reduce: rank r reduces part r of all buffers and writes it to all of them (nobody else touches part r); two
 *   everything else: read from peers; two meetings
 *
 * Where peers cannot reach a large buffer, its rank copies it into memory that they can; after an all_reduce it copies
 * the result back.
 *
 * At most NDP_SHM_OUTSTANDING operations are outstanding, and there are twice as many slots: who begins operation s has
 * waited for s - 8, which all had begun then, so all had waited for s - 16, and its slot is free.
 */
#ifndef NDP_COMM_NODE_SHM_H
#define NDP_COMM_NODE_SHM_H

#include "comm/watch/journal.h"
#include "comm/watch/wait.h"

enum { NDP_SHM_OUTSTANDING = 8, NDP_SHM_SLOTS = 2 * NDP_SHM_OUTSTANDING, NDP_SHM_INLINE = 1024 };

/* A place in memory in words that every rank of the node understands. */
typedef struct ndp_ref {
    int32_t segment; /* < 0: memory that peers cannot reach */
    int64_t offset;
} ndp_ref;

/* How a transport's ranks name memory to each other. */
typedef struct ndp_space {
    void *context;
    ndp_ref (*locate)(void *context, const void *data, size_t bytes);
    /* The same place in this rank's addresses. */
    ndp_status (*resolve)(void *context, ndp_ref ref, void **out);
    /* Memory that peers can reach, for a copy of what they cannot, until `unstage`. NULL where they reach everything.
     */
    ndp_status (*stage)(void *context, size_t bytes, ndp_ref *ref, void **out);
    void (*unstage)(void *context, void *data);
} ndp_space;

typedef struct ndp_shm_slot {
    ndp_record operation;
    bool in_place; /* all_gather: `in` lies at its place in `out` */
    ndp_ref in, out;
    _Alignas(64) unsigned char data[NDP_SHM_INLINE];
} ndp_shm_slot;

/* What one rank shows the others. */
typedef struct ndp_shm_rank {
    ndp_gate arrived, finished;
    ndp_shm_slot slot[NDP_SHM_SLOTS];
} ndp_shm_rank;

/* An operation that this rank has begun and not yet waited for. */
typedef struct ndp_shm_pending {
    ndp_work work;
    bool touched; /* its share is done, and buffers of ranks were touched by others: all have to part */
    void *staged; /* the copy of `in` that peers read and write in its place; NULL: none */
} ndp_shm_pending;

/* One rank's handle on its group's block: `block` is an array of a ndp_shm_rank for each, all zeros at first. */
typedef struct ndp_shm {
    ndp_progress_fn progress;
    ndp_comm *comm;
    ndp_shm_rank *block;
    const ndp_space *space;
    uint32_t begun, shared, waited; /* shared: this rank's share is done */
    ndp_shm_pending pending[NDP_SHM_OUTSTANDING];
    void **in; /* the peers' buffers of the operation at hand */
} ndp_shm;

ndp_status ndp_shm_init(ndp_shm *s, ndp_comm *c, ndp_shm_rank *block, const ndp_space *space);
/* A rank that gives up operations it has begun ends the run: its peers are about to read what it will release. */
void ndp_shm_release(ndp_shm *s);

ndp_status ndp_shm_begin(ndp_shm *s, ndp_work *w);
ndp_status ndp_shm_wait(ndp_shm *s, ndp_work *w);

#endif
