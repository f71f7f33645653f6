/* The memory of staged collectives.
 *
 * A transport around another one, for a device whose memory the host cannot access: a begin copies what the rank hands
 * in to the host's memory and waits for the copy, the other transport works there, and a wait copies the result back.
 * It only moves bytes, so the bits are those of a device on host memory.
 *
 * ndp_comm_call.stage: memory of the host (pinned, so that copies are fast) that no other operation under way uses. The
 * result lies at its beginning and what the rank hands in after it, unless that is a part of the result (all_reduce
 * works in place; all_gather has each rank's part at its place). */
#ifndef NDP_COMM_STAGED_H
#define NDP_COMM_STAGED_H

#include "comm/comm.h"

typedef struct ndp_staged_place {
    size_t in;     /* where what is handed in begins */
    size_t out;    /* bytes of the result */
    size_t handed; /* bytes of what is handed in */
    size_t bytes;  /* of the whole place */
} ndp_staged_place;
/* in, out: bytes of one rank's operand and result; `rank`: its number. */
ndp_staged_place ndp_staged_place_of(ndp_work_kind kind, size_t in, size_t out, int rank);

/* ndp_transport_staged, without waypoints. */
ndp_status ndp_staged_transport(ndp_transport *host, const ndp_device *d, ndp_device_context *context,
                                ndp_transport **out);

#endif
