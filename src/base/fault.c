/* Counts operations by thread, and makes the n-th of a kind fail. An unarmed kind costs one comparison. */
#include "base/fault.h"

#include <errno.h>
#include <signal.h>

static _Thread_local ndp_faults own;

static void arm(ndp_fault_kind kind, int64_t n, int way) {
    n = n > 0 ? n : 0;
    own.of[kind] = (struct ndp_fault_point){.left = n, .armed = n, .way = way};
}

void ndp_fault_arm(ndp_fault_kind kind, int64_t n) { arm(kind, n, NDP_FAULT_ONCE); }
void ndp_fault_arm_from(ndp_fault_kind kind, int64_t n) { arm(kind, n, NDP_FAULT_ALWAYS); }
void ndp_fault_arm_kill(ndp_fault_kind kind, int64_t n) { arm(kind, n, NDP_FAULT_KILL); }
int64_t ndp_fault_passed(ndp_fault_kind kind) { return own.of[kind].armed - own.of[kind].left; }

bool ndp_fault_fired(ndp_fault_kind kind) { return own.of[kind].fired; }

bool ndp_fault(ndp_fault_kind kind) {
    struct ndp_fault_point *f = &own.of[kind];
    bool again = f->fired && f->way == NDP_FAULT_ALWAYS;
    if (!again && (f->left == 0 || --f->left > 0))
        return false;
    f->fired = true;
    if (f->way == NDP_FAULT_KILL)
        raise(SIGKILL);
    errno = kind == NDP_FAULT_WRITE || kind == NDP_FAULT_APPEND ? ENOSPC : EIO;
    return true;
}

ndp_faults ndp_faults_swap(ndp_faults next) {
    ndp_faults now = own;
    own = next;
    return now;
}
