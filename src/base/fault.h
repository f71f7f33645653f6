/* Fault points: tests make the n-th operation of a kind fail, to check that the failure is reported and does no harm.
 * Armed per thread, since a rank may be a thread; never armed in a run. */
#ifndef NDP_BASE_FAULT_H
#define NDP_BASE_FAULT_H

#include "base/status.h"

typedef enum ndp_fault_kind {
    NDP_FAULT_WRITE,  /* creating and filling files and folders */
    NDP_FAULT_SYNC,   /* fsync */
    NDP_FAULT_RENAME, /* rename */
    NDP_FAULT_APPEND, /* adding lines to a log */
    NDP_FAULT_KINDS
} ndp_fault_kind;

/* Makes this thread's n-th call (from 1) of `kind` from now on fail, once. n <= 0 disarms. */
void ndp_fault_arm(ndp_fault_kind kind, int64_t n);
/* The same, but all later ones also fail: a disk that stays full. */
void ndp_fault_arm_from(ndp_fault_kind kind, int64_t n);
/* The same as the first, but the process is killed (SIGKILL) just before the operation. */
void ndp_fault_arm_kill(ndp_fault_kind kind, int64_t n);
/* Operations of `kind` since this thread armed it, up to the fault. */
int64_t ndp_fault_passed(ndp_fault_kind kind);
/* True if this thread's fault of `kind` has fired since it was armed. */
bool ndp_fault_fired(ndp_fault_kind kind);
/* Called at every fault point: true if this operation is to fail. Sets errno as for a full disk (WRITE, APPEND) or a
 * broken one (SYNC, RENAME). */
bool ndp_fault(ndp_fault_kind kind);

/* All of a thread's fault points, for what takes turns on it (base/turns.h): returns them, and sets `next`. */
typedef struct ndp_faults {
    struct ndp_fault_point {
        int64_t left, armed; /* operations until the one that fails, now and at first; 0: not armed */
        bool fired;
        enum { NDP_FAULT_ONCE, NDP_FAULT_ALWAYS, NDP_FAULT_KILL } way;
    } of[NDP_FAULT_KINDS];
} ndp_faults;
ndp_faults ndp_faults_swap(ndp_faults next);

#endif
