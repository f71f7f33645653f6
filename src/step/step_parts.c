/* The time of a rank's instructions, summed by part. Waits inside a unit's list are taken from the unit's time and
 * counted as collectives, so the parts sum to the time of the instructions. */
#include "step/step_parts.h"

#include <math.h>
#include <string.h>

static const ndp_step_part of_phase[NDP_PHASES] = {[NDP_FORWARD] = NDP_PART_FORWARD,
                                                   [NDP_FORWARD_DROP] = NDP_PART_FORWARD,
                                                   [NDP_RECOMPUTE] = NDP_PART_RECOMPUTE,
                                                   [NDP_BACKWARD_INPUT] = NDP_PART_INPUT_GRADIENT,
                                                   [NDP_BACKWARD_WEIGHT] = NDP_PART_WEIGHT_GRADIENT};

ndp_step_part ndp_step_part_of(const ndp_instr *in) {
    if (in->code == NDP_DO_RUN)
        return of_phase[in->phase];
    if (in->call.kind == NDP_CALL_KERNEL)
        return NDP_PART_UPDATE;
    return in->call.op->collective == NDP_RECV   ? NDP_PART_RECEIVE
           : in->call.op->collective == NDP_SEND ? NDP_PART_SEND
                                                 : NDP_PART_COLLECTIVE;
}

void ndp_step_parts(const ndp_program *p, const ndp_instr_time *times, int64_t n, double seconds[NDP_PARTS]) {
    memset(seconds, 0, NDP_PARTS * sizeof *seconds);
    for (ndp_walk w = NDP_WALK_START; ndp_program_next(p, NDP_ALL_ITERATIONS, &w) && w.executed < n;) {
        const ndp_instr_time *t = &times[w.executed];
        seconds[ndp_step_part_of(&p->instrs[w.at])] += fmax(t->end - t->start - t->waited, 0); /* rounding */
        seconds[NDP_PART_COLLECTIVE] += t->waited;
    }
}
