/* What each op takes on the device, by stamps around every call (device/device.h). The host waits for nothing while
 * calls are submitted; the times are read after their queue has been waited for. Where there are more calls than
 * stamps, the queue is drained now and then. */
#ifndef NDP_GRAPH_OP_TIMES_H
#define NDP_GRAPH_OP_TIMES_H

#include "graph/graph.h"

typedef struct ndp_op_times {
    const ndp_device *device; /* NULL: nothing is timed */
    ndp_device_context *context;
    ndp_stamp *stamps; /* `most` of them, of which n are submitted and unread */
    int *ops;          /* what ran before each stamp: an ndp_op_id, or NDP_NONE */
    int64_t n, most;
    double *seconds; /* by ndp_op_id; added to. Borrowed */
} ndp_op_times;

/* For about `calls` calls at a time. NDP_ENOMEM. */
NDP_API ndp_status ndp_op_times_init(ndp_op_times *t, const ndp_device *device, ndp_device_context *context,
                                     int64_t calls, double *seconds);
void ndp_op_times_release(ndp_op_times *t);
/* The next stamp drains the queue; where the host must not block in its device, the caller does that before. */
static inline bool ndp_op_times_is_full(const ndp_op_times *t) { return t->n == t->most; }
/* Submits a stamp: what was submitted since the last one was the op's (NDP_NONE: it is not timed). */
NDP_API ndp_status ndp_op_times_stamp(ndp_op_times *t, ndp_queue *q, int op);
/* Adds what is unread to `seconds`. The queue has reached all stamps. */
NDP_API ndp_status ndp_op_times_read(ndp_op_times *t);

#endif
