#include "base/fault.h"

#include <errno.h>

/* Operations left until the one that fails; 0: not armed. */
static _Thread_local int64_t left[NDP_FAULT_KINDS];
static _Thread_local bool fired[NDP_FAULT_KINDS];

void ndp_fault_arm(ndp_fault_kind kind, int64_t n) {
    left[kind] = n > 0 ? n : 0;
    fired[kind] = false;
}

bool ndp_fault_fired(ndp_fault_kind kind) { return fired[kind]; }

bool ndp_fault(ndp_fault_kind kind) {
    if (left[kind] == 0 || --left[kind] > 0)
        return false;
    fired[kind] = true;
    errno = kind == NDP_FAULT_WRITE ? ENOSPC : EIO;
    return true;
}
