/* How the host waits for a queue of its rank's device: comm.h has the functions that callers use. device_wait.c has the
 * method. */
#ifndef NDP_COMM_WATCH_DEVICE_WAIT_H
#define NDP_COMM_WATCH_DEVICE_WAIT_H

#include "comm/impl.h"

/* Operations that a queue may be behind. A device's driver takes about 1000; a submission beyond these would block the
 * host, which could then see neither a failure nor the time limit. */
enum { NDP_OPERATIONS_AHEAD = 512 };

/* Waits until the queue is not that far behind. Errors as ndp_transport_drain. */
ndp_status ndp_device_keep_up(ndp_transport *t, ndp_queue *q);

#endif
