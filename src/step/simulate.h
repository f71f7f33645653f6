/* The simulator: replays step programs against each other, call by call, with a time for each instruction. `plan
 * --timeline` draws the result. It knows no schedule and no axis, only programs, so it can price any layout.
 *
 * A rank has a stream of its kernels and waits, and one of collectives for each channel. Units' lists are walked like
 * the program. Ranks advance in the order of their time.
 *
 *     kernel               takes its cost; more of it while something that its rank has begun moves (`beside`)
 *     begin                takes nothing
 *     collective           starts when all its members have begun it, those before it on its channel are over, and the
 *                          links that it uses have passed what was begun before it (`links`); it takes its cost, and
 *                          the rank's wait ends when it is over
 *     wait, receive        until the send has begun, and the cost of the message after that: the receiver copies
 *     wait, send           until the receiver has copied, in this message's wait or in any earlier wait after both
 *                          sides have begun
 *     with `background`: until the cost of the message after both sides began, on both sides
 *
 * Members of a group whose programs are not given begin when those that are do. */
#ifndef NDP_STEP_SIMULATE_H
#define NDP_STEP_SIMULATE_H

#include "graph/price.h"
#include "step/lone_lists.h"
#include "step/step_parts.h"

enum { NDP_UNTIL = 2 + NDP_BUSY_LINKS };

/* What calls cost. `seconds` is called with a kernel, or the begin of a collective or message; `in` is the instruction
 * that it is, or in whose list it is. It returns seconds >= 0, the same for all members or sides. */
typedef struct ndp_step_costs {
    double (*seconds)(const void *user, const ndp_program *p, const ndp_instr *in, const ndp_call *call);
    const void *user;
    bool background; /* messages move while ranks compute, as over a network card; false: a rank copies in its waits */
    /* How long the operation keeps each of its rank's links busy, set to 0: a link passes one after the other, the
     * first begun first. Of a message, the sender's. NULL: operations of several channels do not get in each other's
     * way. */
    void (*links)(const void *user, const ndp_program *p, const ndp_call *call, double busy[NDP_BUSY_LINKS]);
    double beside; /* kernels take (1 + beside) times their cost while an operation of their rank moves */
    /* Told how long each kernel and wait of program i takes, or so many of them together, and with `in` NULL how long
     * it has ended before the last one; then the simulation has no times and no parts, and a call of a list costs as
     * much in every instruction that runs it. NULL: it has. */
    void (*spent)(void *into, int i, const ndp_instr *in, const ndp_call *call, double seconds, int64_t times);
    void *into;
    /* Told when program i leaves its first repeated range: the time, until when something that it has begun moves, and
     * until when each of its links is busy, none of which is before the first. May be NULL. */
    void (*leaves)(void *into, int i, const double until[NDP_UNTIL]);
    ndp_visits visits; /* of repeated ranges; {0}: all iterations */
} ndp_step_costs;

/* A `seconds` for ndp_step_costs whose `user` is an ndp_price. */
double ndp_price_seconds(const void *price, const ndp_program *p, const ndp_instr *in, const ndp_call *call);

typedef struct ndp_simulation {
    ndp_instr_time **times;     /* by program, by instruction in the order of execution (ndp_walk.executed) */
    double (*parts)[NDP_PARTS]; /* by program: what it does from 0 to `makespan`; both NULL with costs.spent */
    double makespan;            /* the end of the last instruction of all */
    int n;                      /* programs */
} ndp_simulation;

/* Simulates one step of `n` ranks of one world: all, or one for each distinct role. Release in any case. NDP_ENOMEM;
 * NDP_EBUG: the programs are such as ndp_program_check refuses. */
NDP_API ndp_status ndp_simulate(const ndp_program *const *programs, int n, const ndp_step_costs *costs,
                                ndp_simulation *out);
void ndp_simulation_release(ndp_simulation *s);

#endif
