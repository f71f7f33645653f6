/* The simulator: replays step programs against each other with a time for each instruction. `plan --timeline` draws
 * the result. It knows no schedule and no axis, only programs, so it can price any layout.
 *
 *     RUN, kernel          takes its cost
 *     begin                takes nothing
 *     wait, collective     until its cost after the last of its members began
 *     wait, receive        until the send has begun, and the cost of the message after that: the receiver copies
 *     wait, send           until the receiver has copied, in this message's wait or in any earlier wait after both
 *                          sides have begun
 *     with `background`: until the cost of the message after both sides began, on both sides
 *
 * What a unit's list communicates is a part of its RUN, so ranks do not wait for each other there. Members of a group
 * whose programs are not given begin when this rank does. */
#ifndef NDP_STEP_SIMULATE_H
#define NDP_STEP_SIMULATE_H

#include "graph/price.h"
#include "step/program.h"

/* What instructions cost. `seconds` is called with a RUN, a kernel or a begin: for that, of the collective or message.
 * It returns seconds >= 0, the same for both sides of a message. */
typedef struct ndp_step_costs {
    double (*seconds)(const void *user, const ndp_program *p, const ndp_instr *in);
    const void *user;
    bool background; /* messages move while ranks compute, as over a network card; false: a rank copies in its waits */
} ndp_step_costs;

/* A `seconds` for ndp_step_costs whose `user` is an ndp_price. RUNs include their list's communications, without
 * overlap. */
double ndp_price_seconds(const void *price, const ndp_program *p, const ndp_instr *in);

typedef struct ndp_simulation {
    ndp_instr_time **times; /* by program, by instruction */
    double makespan;        /* the end of the last instruction of all */
    int n;                  /* programs */
} ndp_simulation;

/* Simulates one step of `n` ranks of one world: all, or one for each distinct role. Release in any case. NDP_ENOMEM;
 * NDP_EBUG: the programs are such as ndp_program_check refuses. */
NDP_API ndp_status ndp_simulate(const ndp_program *const *programs, int n, const ndp_step_costs *costs,
                                ndp_simulation *out);
void ndp_simulation_release(ndp_simulation *s);

/* Seconds that program i computes: its RUNs and kernels. */
double ndp_simulation_busy(const ndp_simulation *s, int i, const ndp_program *p);

#endif
