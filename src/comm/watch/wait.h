/* How ranks wait for each other: gates, and the health record that tells a waiting rank that nobody will come.
 *
 * Both live in memory that all ranks of a node see (the heap of `local`, a mapped segment between processes) and start
 * as zeros.
 */
#ifndef NDP_COMM_WATCH_WAIT_H
#define NDP_COMM_WATCH_WAIT_H

#include "comm/impl.h"
#include <stdatomic.h>

/* A counter that one rank advances and others wait on. What was written before ndp_gate_set is seen after
 * ndp_gate_wait. Values are compared with wrap-around. */
typedef struct ndp_gate {
    _Alignas(64) _Atomic uint32_t value;
    _Atomic uint32_t sleepers;
} ndp_gate;

/* Who failed first, who is gone, and who is at work in other ranks' memory. After a failure ranks return and release
 * their buffers, so nobody may touch a peer's memory any more: a rank enters before it does and leaves behind it; after
 * a failure nobody enters, and no error is returned before all are out. */
typedef struct ndp_presence {
    _Alignas(64) _Atomic uint32_t left; /* this rank has ended, without an error */
    _Atomic uint32_t inside;
    _Atomic uint32_t process; /* `shm`: the process that has joined as this rank; 0: none yet */
} ndp_presence;

typedef struct ndp_health {
    _Atomic uint32_t failed; /* 0: nobody; 1: being written; 2: rank and message stand */
    int rank, world;
    char message[1024];
    ndp_presence of[]; /* by world rank */
} ndp_health;

static inline size_t ndp_health_bytes(int world) { return sizeof(ndp_health) + (size_t)world * sizeof(ndp_presence); }

/* Records the failure of `rank`, if it is the first one, and waits until no rank is in another's memory. A message that
 * begins with "rank R: " is that of R, which all have agreed on (checkpoint/agree.h): R is recorded, on every node, so
 * that it alone tells. */
void ndp_health_fail(ndp_health *h, int rank, const char *message);
/* NDP_ECOMM "rank R failed: message" once somebody did; nobody is in another's memory then. */
ndp_status ndp_health_check(ndp_health *h);
ndp_status ndp_health_enter(ndp_health *h, int rank);
void ndp_health_leave(ndp_health *h, int rank);

void ndp_gate_set(ndp_gate *g, uint32_t value);
static inline bool ndp_gate_reached(ndp_gate *g, uint32_t value) {
    return (int32_t)(atomic_load_explicit(&g->value, memory_order_acquire) - value) >= 0;
}
/* What a rank that waits for one operation does meanwhile: its share of others that it has begun. Ranks may thus wait
 * for operations of several communicators in different orders. `run` never waits. */
typedef struct ndp_duty {
    struct ndp_duty *next;
    ndp_status (*run)(struct ndp_duty *d);
} ndp_duty;

void ndp_duty_add(ndp_transport *t, ndp_duty *d);
void ndp_duty_remove(ndp_transport *t, ndp_duty *d);
/* Runs all of them, when the transport owes anything. */
ndp_status ndp_duties_run(ndp_transport *t);

/* Waits until the gate has reached `value`; `member` of the work's group is the one who advances it. `own`: of the
 * operations that this rank owes, how many are the one it waits for. NDP_ECOMM when a rank failed, when that member
 * left the run, or when the transport's time is over. */
ndp_status ndp_gate_wait(ndp_gate *g, uint32_t value, const ndp_work *w, int member, int own);

/* Reads $NDP_COMM_TIMEOUT (seconds; 300) and counts the cores this process may use: `crowded` when fewer than `ranks`.
 */
ndp_status ndp_wait_setup(ndp_transport *t, int ranks);

#endif
