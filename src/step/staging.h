/* Inside the step room: collectives on a device whose memory the host cannot access. They work on copies of their
 * operands in pinned memory of the host: a begin copies what the rank hands in to the host, a wait copies the results
 * back. The bits are those of a device on host memory.
 *
 * Each collective has a place in one piece of pinned memory, which is planned with the program; places of collectives
 * that are never under way at the same time overlap. So a step allocates nothing.
 *
 * Order: a begin drains the queue before peers may read the copy. This also ends the copies of all earlier waits, so no
 * copy of the queue still reads a place that is used again. */
#ifndef NDP_STEP_STAGING_H
#define NDP_STEP_STAGING_H

#include "step/engine_parts.h"

/* Plans the places of the program's collectives and of those in its units, if exec->device needs them: sets p->staging.
 * NDP_ENOMEM. */
ndp_status ndp_staging_plan(ndp_program *p);
void ndp_staging_release(ndp_staging *s);

/* Before the begin of a collective on the host (`index`: its call in the unit that runs, or NDP_NONE): copies its
 * inputs from the device and makes `operands` those on the host. Does nothing where the host accesses the device's
 * memory. */
ndp_status ndp_staged_begin(ndp_engine *e, const ndp_call *c, int index, ndp_op_call *operands);
/* After its wait: submits the copies of its results to the device. `operands`: those on the device. */
ndp_status ndp_staged_wait(ndp_engine *e, const ndp_call *c, int index, const ndp_op_call *operands);

#endif
