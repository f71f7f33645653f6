/* The placement check: proves from the emitted programs, before the first step, that every sum over ranks and
 * micro-batches is complete, and has each contribution once.
 *
 * It reads the unit programs and the step program of one rank of every role, the whole model's graph and the mesh, and
 * shares no code with what writes them (parallel/, and the files of step/ that emit communication). Two levels:
 *   units (unit.h)  every list of calls, once for each graph and place on pp, on all lanes together: for each value,
 *                   which rows and columns of which value of the whole graph it has, and its share (share.h);
 *   steps (step.h)  the step program: which unit, micro-batch and version is in each block, and the shares of
 * gradients, of the loss, of the norm, from the first instruction to the last and into the next step.
 *
 * Calls do not say everything. What they leave out is claimed, and the claims are proven to tile the whole: which
 * rectangle of a tensor each segment is, which element of a slice is in which piece, and which rows of a micro-batch
 * and which samples of a batch a rank loads. */
#ifndef NDP_PLACEMENT_PLACEMENT_H
#define NDP_PLACEMENT_PLACEMENT_H

#include "step/claims.h"

typedef struct ndp_placement_opts {
    const ndp_program *const *programs; /* of all ranks of a world, or of each role (see ndp_placement_roles) */
    int n;
    const ndp_claims *claims;
} ndp_placement_opts;

/* Proves the programs right. *proof (may be NULL): what was proven, as one line without "checked: ". NDP_EBUG names the
 * rank, instruction, tensor, axis, what it is, what it must be, and where it was made. NDP_ENOMEM. */
NDP_API ndp_status ndp_placement_check(const ndp_placement_opts *o, ndp_str *proof);

/* The table of a unit's values on the first lane: value, shape, state on every axis, instruction (`plan --placements`).
 * `unit`: its name; NULL: all graphs, once each. */
NDP_API ndp_status ndp_placement_print(const ndp_placement_opts *o, const char *unit, ndp_str *out);

#endif
