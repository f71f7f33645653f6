/* How ranks wait for each other: gates in shared memory, and what a rank does while it waits. */
#ifndef NDP_COMM_WATCH_WAIT_H
#define NDP_COMM_WATCH_WAIT_H

#include "comm/impl.h"
#include <stdatomic.h>

/* A counter that one rank advances and others wait on; in memory that all of them see, zeroed. What was written before
 * ndp_gate_set is seen after ndp_gate_wait. Values are compared with wrap-around. */
typedef struct ndp_gate {
    _Alignas(64) _Atomic uint32_t value;
    _Atomic uint32_t sleepers;
} ndp_gate;

void ndp_gate_set(ndp_gate *g, uint32_t value);
static inline bool ndp_gate_reached(ndp_gate *g, uint32_t value) {
    return (int32_t)(atomic_load_explicit(&g->value, memory_order_acquire) - value) >= 0;
}
/* Waits until the gate has reached `value`; `member` of the work's group advances it. own: how many of this rank's
 * pending shares belong to `w`. NDP_ECOMM if a rank failed, that member left the run, the wait is part of a cycle, or
 * the transport's time limit is over. */
ndp_status ndp_gate_wait(ndp_gate *g, uint32_t value, const ndp_work *w, int member, int own);

/* What a rank runs while it waits for one operation: its share of the others that it has begun. So ranks may wait for
 * operations of several communicators in different orders. `run` never waits and begins no operation. */
typedef struct ndp_progress_fn {
    struct ndp_progress_fn *next;
    ndp_status (*run)(struct ndp_progress_fn *f);
} ndp_progress_fn;

/* The transport keeps a list of them; `f` stays where it is until it is removed. */
void ndp_progress_fn_add(ndp_transport *t, ndp_progress_fn *f);
void ndp_progress_fn_remove(ndp_transport *t, ndp_progress_fn *f);
/* Runs all of them if any share of this rank is pending. */
ndp_status ndp_progress_fns_run(ndp_transport *t);

enum { NDP_WAIT_SECONDS = 300 };
/* Seconds that a wait may last: $NDP_COMM_TIMEOUT, or NDP_WAIT_SECONDS. */
NDP_API ndp_status ndp_wait_limit(double *out);
/* Reads that limit, and compares the cores that this process may use with `ranks`. */
ndp_status ndp_wait_setup(ndp_transport *t, int ranks);

#endif
