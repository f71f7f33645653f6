/* Times of ops by stamps in a queue. Stamp i lies between call i - 1 and call i, so n calls take n + 1 stamps; when
 * they run out, the queue is drained once, and the last stamp begins the next batch. */
#include "graph/op_times.h"

#include <stdlib.h>

/* 2^16 events are a few MiB of a driver's memory. */
enum { LEAST = 2, MOST = 1 << 16 };

ndp_status ndp_op_times_init(ndp_op_times *t, const ndp_device *device, ndp_device_context *context, int64_t calls,
                             double *seconds) {
    int64_t most = calls + 1 < LEAST ? LEAST : calls + 1 > MOST ? MOST : calls + 1;
    *t = (ndp_op_times){.device = device, .context = context, .seconds = seconds};
    t->stamps = calloc((size_t)most, sizeof *t->stamps);
    t->ops = calloc((size_t)most, sizeof *t->ops);
    ndp_status st = NDP_MEMORY(t->stamps && t->ops, "to time %lld calls", (long long)calls);
    while (st == NDP_OK && t->most < most) {
        st = device->stamp_create(context, &t->stamps[t->most]);
        t->most += st == NDP_OK;
    }
    if (st != NDP_OK)
        ndp_op_times_release(t);
    return st;
}

void ndp_op_times_release(ndp_op_times *t) {
    for (int64_t i = 0; i < t->most; i++)
        t->device->stamp_destroy(&t->stamps[i]);
    free(t->stamps);
    free(t->ops);
    *t = (ndp_op_times){0};
}

/* The last stamp becomes the first one of those that follow. */
static ndp_status make_room(ndp_op_times *t, ndp_queue *q) {
    int64_t last = t->n - 1;
    NDP_TRY(t->device->drain(q));
    NDP_TRY(ndp_op_times_read(t));
    ndp_stamp first = t->stamps[last];
    t->stamps[last] = t->stamps[0];
    t->stamps[0] = first;
    t->ops[0] = NDP_NONE;
    t->n = 1;
    return NDP_OK;
}

ndp_status ndp_op_times_stamp(ndp_op_times *t, ndp_queue *q, int op) {
    if (ndp_op_times_is_full(t))
        NDP_TRY(make_room(t, q));
    NDP_TRY(t->device->stamp(q, &t->stamps[t->n]));
    t->ops[t->n++] = op;
    return NDP_OK;
}

ndp_status ndp_op_times_read(ndp_op_times *t) {
    for (int64_t i = 1; i < t->n; i++) {
        double seconds;
        if (t->ops[i] == NDP_NONE)
            continue;
        NDP_TRY(t->device->between(t->context, &t->stamps[i - 1], &t->stamps[i], &seconds));
        t->seconds[t->ops[i]] += seconds;
    }
    t->n = 0;
    return NDP_OK;
}
