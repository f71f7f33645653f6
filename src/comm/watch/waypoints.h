/* Waypoints: where the queue of a rank's device is in its program.
 *
 * Before each instruction, and each begin and wait of a collective, the queue writes the number of a waypoint to a word
 * of pinned memory, in its order (ndp_device.write_word). So the host knows how far the queue is, although it has
 * submitted more, and tells the other ranks in its journal (ndp_device_place). What a number stands for is in a ring of
 * the rank that submitted it.
 *
 * Only the queue that computes has waypoints; those of communicators need none. A rank has come to an operation when
 * its computing queue has passed the begin. Operations of a communicator run in the order of their begins, and the
 * computing queue waits for them in this order. So the ranks that keep it in a wait are those whose computing queues
 * are before their begins of that operation, and if there is none, the operation itself does not complete. */
#ifndef NDP_COMM_WATCH_WAYPOINTS_H
#define NDP_COMM_WATCH_WAYPOINTS_H

#include "comm/watch/journal.h"

enum { NDP_WAYPOINTS = 1024 };

typedef struct ndp_waypoint {
    uint32_t number;     /* from 1, of all queues of the rank */
    uint32_t operations; /* submitted to the queue before it; wraps around */
    ndp_call_site at;
    const char *doing; /* a constant: a phase or an op */
    bool waits;        /* the wait of a collective, not its begin */
    ndp_work awaited;  /* comm, kind, peer and record of what the queue waits for there; comm NULL: nothing */
} ndp_waypoint;

/* Of a device's transport. */
typedef struct ndp_waypoints {
    struct ndp_waypoints *next; /* of the same host's transport */
    uint32_t *word;
    uint32_t newest;     /* number of the newest; 0: none */
    uint32_t operations; /* submitted so far; wraps around */
    uint32_t reached;    /* the number that the host has seen last */
    double since;        /* when it saw it first: the queue has not gone on since, as far as the host knows */
    bool each_call;      /* NDP_GPU_CALLS=1: the calls of a unit's list are waypoints as well */
    bool explained;      /* a failure of the device has been put into words */
    ndp_waypoint ring[NDP_WAYPOINTS];
} ndp_waypoints;

/* t->waypoints of a device's transport, if its device can write words; else they stay NULL, which is fine for all
 * functions here. NDP_ENOMEM. */
ndp_status ndp_waypoints_create(ndp_transport *t);
void ndp_waypoints_destroy(ndp_transport *t);

/* Submits a waypoint to `q`; `operations` follow it. *number: its number; NULL: not wanted. */
ndp_status ndp_waypoint_submit(ndp_transport *t, ndp_queue *q, const ndp_waypoint *w, int operations, uint32_t *number);
/* Where the host saw the queue last, which the journal has; the queue may have gone on since. NULL: not known. */
const ndp_waypoint *ndp_waypoint_seen(const ndp_waypoints *w);
/* Operations that were submitted after it. */
uint32_t ndp_waypoints_ahead(const ndp_waypoints *w);
/* Reads the word. */
void ndp_waypoints_look(ndp_waypoints *w, double now);
/* Looks at the queues of all device transports beside `host`. Returns when it saw one of them go on last, in this or in
 * any look before; 0: never. */
double ndp_waypoints_went_on(ndp_transport *host, double now);
/* Enters in the rank's journal where its queues are: those of all device transports beside `host`. */
void ndp_waypoints_publish(ndp_transport *host, double now);
/* For every wait of a rank, on a transport of the host or of a device, after its progress functions: publishes, since
 * the device may go on while the host waits for something else, and enters that the rank is alive. */
void ndp_waypoints_poll(ndp_transport *t, double now);
/* Where the host saw the queue last. False: not known. */
bool ndp_waypoints_place(const ndp_waypoints *w, double now, ndp_device_place *out);
/* What was submitted to the queue last, without times. False: nothing. */
bool ndp_waypoints_submitted(const ndp_waypoints *w, ndp_device_place *out);

#endif
