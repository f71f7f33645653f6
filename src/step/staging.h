/* Inside the step room: the pinned memory of staged collectives (comm/staged.h).
 *
 * Each collective has a place in one piece of pinned memory, which is planned with the program; places of collectives
 * that are never under way at the same time overlap. So a step allocates nothing. */
#ifndef NDP_STEP_STAGING_H
#define NDP_STEP_STAGING_H

#include "step/engine_parts.h"

/* Plans the places of the collectives of a program that stages them (ndp_exec_stages), units included: sets p->staging.
 * NDP_ENOMEM. */
ndp_status ndp_staging_plan(ndp_program *p);
void ndp_staging_release(ndp_staging *s);

/* The place of the collective that begins now (`index`: its call in the unit that runs, or NDP_NONE). NULL: nothing is
 * staged. */
void *ndp_staging_at(const ndp_engine *e, int index);

/* Sets the counts of rows of an all_to_all_rows that begins now, call `index` of its list: `counts`, in the host's
 * memory until the operation ends. A device's are read once for all operations of a run, or of an iteration of a range
 * of it, that use them; ranks of a group wait for such operations
 * in the order of their begins, and there is room for the counts of all that may be under way. NDP_EINVAL: more rows
 * than were planned. */
ndp_status ndp_staging_rows(ndp_engine *e, int index, const ndp_call *c, const ndp_view *counts, ndp_comm_call *call);

#endif
