/* Inside the placement room: proving the step programs (step_*.c).
 *
 * The programs of all lanes are executed together, on what memory holds in place of numbers: which weights, of which
 * version; the output of which unit, for which micro-batch; how much of which gradient. A lane runs until it waits for
 * another. Memory starts as a step leaves it, and at the end it must be so again, with every weight updated once.
 *
 * Of a long step two iterations of the repeated range are executed. Its micro-batches then are all that count. */
#ifndef NDP_PLACEMENT_STEP_H
#define NDP_PLACEMENT_STEP_H

#include "placement/unit.h"

/* `units`: proven before. NDP_EBUG names the rank, the instruction, what is wrong, and where it was made. NDP_ENOMEM.
 */
ndp_status ndp_steps_prove(const ndp_lanes *l, const ndp_units *u);

/* Proves the claims that need no program: segment tables, piece tables of all slices, samples and rows
 * (prove_claims.c). */
ndp_status ndp_claims_prove(const ndp_lanes *l);

#endif
