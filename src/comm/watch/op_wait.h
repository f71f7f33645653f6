/* A wait for an operation without a gate, that the rank enters in its journal while it does something else for it:
 * its device is stuck in the wait (device_wait.c), or NCCL connects ranks (nccl_comm.c). */
#ifndef NDP_COMM_WATCH_OP_WAIT_H
#define NDP_COMM_WATCH_OP_WAIT_H

#include "comm/watch/watchdog.h"

typedef struct ndp_op_wait {
    ndp_work work; /* comm, kind, peer and record alone */
    ndp_expected_op expected;
    ndp_watchdog watchdog;
} ndp_op_wait;

/* at: where in the program. on_host: the other ranks have begun it once they have submitted it; else once their devices
 * have come there. */
void ndp_op_wait_begin(ndp_op_wait *o, const ndp_work *w, const ndp_call_site *at, bool on_host);
/* Now and then: finds who has not begun it, and a cycle. NDP_ECOMM as ndp_watchdog_find_cycle. */
ndp_status ndp_op_wait_look(ndp_op_wait *o, double now);
/* NDP_ECOMM as ndp_watchdog_check_limit. */
ndp_status ndp_op_wait_check_limit(const ndp_op_wait *o, double since, double now);
void ndp_op_wait_end(const ndp_op_wait *o);

#endif
