/* The parts of a step: what a rank's time in it goes to, simulated (simulate.h) or measured (engine.h). Everything that
 * a rank does is in one of them, so they sum to the step. */
#ifndef NDP_STEP_STEP_PARTS_H
#define NDP_STEP_STEP_PARTS_H

#include "step/program.h"

/* X(PART, name, colour in pictures). FORWARD to UPDATE are kernels; UPDATE are those of the program itself: loss scale,
 * norm, clipping, update. RECEIVE, SEND and COLLECTIVE are waits that block the rank, and begins. IDLE is before its
 * first instruction and after its last. */
#define NDP_PARTS_LIST(X)                                                                                              \
    X(FORWARD, "forward", "#4e79a7")                                                                                   \
    X(RECOMPUTE, "recompute", "#a0cbe8")                                                                               \
    X(INPUT_GRADIENT, "input gradient", "#76b7b2")                                                                     \
    X(WEIGHT_GRADIENT, "weight gradient", "#f1ce63")                                                                   \
    X(UPDATE, "update", "#9c755f")                                                                                     \
    X(RECEIVE, "receive", "#e8e8e8")                                                                                   \
    X(SEND, "send", "#d37295")                                                                                         \
    X(COLLECTIVE, "collective", "#e15759")                                                                             \
    X(IDLE, "idle", "#ffffff")

#define NDP_PART_ENUMERATOR(PART, ...) NDP_PART_##PART,
typedef enum ndp_step_part { NDP_PARTS_LIST(NDP_PART_ENUMERATOR) NDP_PARTS } ndp_step_part;

/* Of an instruction, apart from the waits of a unit's list. */
ndp_step_part ndp_step_part_of(const ndp_instr *in);

/* Seconds of the first `n` instructions that a rank executed, at `times`. They sum to the time from the start of the
 * first to the end of the last, if each instruction starts when the one before it ends; how long the rank is idle, only
 * its caller knows. */
void ndp_step_parts(const ndp_program *p, const ndp_instr_time *times, int64_t n, double seconds[NDP_PARTS]);

#endif
