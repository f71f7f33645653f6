#include "base/fault.h"

#include <errno.h>
#include <signal.h>

/* Operations until the one that fails; 0: not armed. */
static _Thread_local int64_t left[NDP_FAULT_KINDS];
static _Thread_local int64_t armed[NDP_FAULT_KINDS];
static _Thread_local bool fired[NDP_FAULT_KINDS], kills[NDP_FAULT_KINDS];

static void arm(ndp_fault_kind kind, int64_t n, bool kill) {
    armed[kind] = left[kind] = n > 0 ? n : 0;
    fired[kind] = false;
    kills[kind] = kill;
}

void ndp_fault_arm(ndp_fault_kind kind, int64_t n) { arm(kind, n, false); }
void ndp_fault_arm_kill(ndp_fault_kind kind, int64_t n) { arm(kind, n, true); }
int64_t ndp_fault_passed(ndp_fault_kind kind) { return armed[kind] - left[kind]; }

bool ndp_fault_fired(ndp_fault_kind kind) { return fired[kind]; }

bool ndp_fault(ndp_fault_kind kind) {
    if (left[kind] == 0 || --left[kind] > 0)
        return false;
    fired[kind] = true;
    if (kills[kind])
        raise(SIGKILL);
    errno = kind == NDP_FAULT_WRITE ? ENOSPC : EIO;
    return true;
}
