/* The health record: which rank failed first, which ranks have left the run, and which are at work in other ranks'
 * memory. It is in memory that all ranks of a node see (the heap for `local`, the shared file between processes), and
 * starts as zeros.
 *
 * After a failure ranks return and release their buffers, so no rank may touch a peer's memory any more. Hence: a rank
 * enters before it reads or writes a peer's buffer and leaves after; after a failure no rank enters, and no error is
 * returned before all are out. */
#ifndef NDP_COMM_WATCH_HEALTH_H
#define NDP_COMM_WATCH_HEALTH_H

#include "comm/impl.h"
#include <stdatomic.h>

typedef struct ndp_presence {
    _Alignas(64) _Atomic uint32_t left; /* this rank has ended without an error */
    _Atomic uint32_t inside;            /* it is between enter and leave */
    _Atomic uint32_t quiet;   /* `local`, after a failure: its queues reach no memory any more (node/lane.h) */
    _Atomic uint32_t process; /* the process that has joined as this rank; 0: none yet, or `local` */
    _Atomic uint64_t started; /* when that process began (base/child.h); 0: not known */
    _Atomic uint32_t told;    /* `mpi`: some rank has said that it is stopped */
    _Atomic uint32_t ended;   /* `mpi`: it is about to end by itself, behind MPI_Finalize */
} ndp_presence;

typedef struct ndp_health {
    _Atomic uint32_t failed; /* 0: no rank; 1: being written; 2: rank and message are valid */
    int rank, world;
    char message[1024];
    /* A rank has failed and waits for the others to say so (ndp_health_report): 0: none; 1: being written or read; 2:
     * its rank and message are valid. */
    _Atomic uint32_t reports;
    int reporter;
    char report[1024];
    /* Where journals go after a failure (ndp_transport_keep_journals): 0: nowhere; 1: being written; 2: to this run
     * folder, as long as it is this run's. */
    _Atomic uint32_t keeps;
    char folder[1024];
    uint64_t lock, job; /* the inodes of its lock and its job.yaml */
    ndp_presence of[];  /* by world rank */
} ndp_health;

static inline size_t ndp_health_bytes(int world) { return sizeof(ndp_health) + (size_t)world * sizeof(ndp_presence); }

/* Records the failure of `rank` if it is the first, and waits until no rank is in another's memory. A message that
 * begins with "rank R: " is one that all ranks have agreed on (checkpoint/agree.h): R is then recorded, on every node,
 * so that R alone reports it. */
void ndp_health_fail(ndp_health *h, int rank, const char *message);
/* The same, without waiting: the caller touches no memory of another rank, nor does the rank that it speaks for. */
void ndp_health_record(ndp_health *h, int rank, const char *message);
/* The same for a wait that cannot end. If a rank has reported a failure that the others have not come to hear, that is
 * the one recorded. */
void ndp_health_fail_wait(ndp_health *h, int rank, const char *message);
/* `rank` has failed with `message`, and is about to meet all others to say so: the cause if a wait fails meanwhile.
 * NULL: they have met. */
void ndp_health_report(ndp_health *h, int rank, const char *message);
/* NDP_ECOMM "rank R failed: message" after a failure; no rank is in another's memory then. */
ndp_status ndp_health_check(ndp_health *h);
/* NDP_ECOMM after a failure: the caller has not entered. */
ndp_status ndp_health_enter(ndp_health *h, int rank);
void ndp_health_leave(ndp_health *h, int rank);

#endif
