/* Counters of operations, by thread: the n-th one of a kind fails. An unarmed kind costs one comparison. */
#include "base/fault.h"

#include <errno.h>
#include <signal.h>

typedef enum fault_way { ONCE, ALWAYS, KILL } fault_way;

/* Operations until the one that fails; 0: not armed. */
static _Thread_local int64_t left[NDP_FAULT_KINDS];
static _Thread_local int64_t armed[NDP_FAULT_KINDS];
static _Thread_local bool fired[NDP_FAULT_KINDS];
static _Thread_local fault_way ways[NDP_FAULT_KINDS];

static void arm(ndp_fault_kind kind, int64_t n, fault_way way) {
    armed[kind] = left[kind] = n > 0 ? n : 0;
    fired[kind] = false;
    ways[kind] = way;
}

void ndp_fault_arm(ndp_fault_kind kind, int64_t n) { arm(kind, n, ONCE); }
void ndp_fault_arm_from(ndp_fault_kind kind, int64_t n) { arm(kind, n, ALWAYS); }
void ndp_fault_arm_kill(ndp_fault_kind kind, int64_t n) { arm(kind, n, KILL); }
int64_t ndp_fault_passed(ndp_fault_kind kind) { return armed[kind] - left[kind]; }

bool ndp_fault_fired(ndp_fault_kind kind) { return fired[kind]; }

bool ndp_fault(ndp_fault_kind kind) {
    bool again = fired[kind] && ways[kind] == ALWAYS;
    if (!again && (left[kind] == 0 || --left[kind] > 0))
        return false;
    fired[kind] = true;
    if (ways[kind] == KILL)
        raise(SIGKILL);
    errno = kind == NDP_FAULT_WRITE || kind == NDP_FAULT_APPEND ? ENOSPC : EIO;
    return true;
}
