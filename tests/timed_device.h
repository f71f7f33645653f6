/* A device for tests that takes time instead of computing: a RUN or a kernel of the program sleeps as long as a table
 * of costs (step/simulate.h) says. Messages and collectives are real. So more ranks than cores measure a schedule and
 * its communication, not the cores, and can be compared with the simulation of the same costs.
 *
 * Each rank has its own, since a kernel finds the engine whose instruction it belongs to by its device. The first
 * kernel of an instruction sleeps for all of its kernels; they leave their outputs alone, so weights and losses mean
 * nothing. */
#ifndef NDP_TESTS_TIMED_DEVICE_H
#define NDP_TESTS_TIMED_DEVICE_H

#include "ops/op.h"
#include "step/engine_parts.h"
#include "step/simulate.h"

#include <errno.h>
#include <sys/prctl.h>
#include <time.h>

typedef struct timed_device {
    ndp_device device;
    ndp_kernel kernel;
    const ndp_kernel *table[NDP_OP_COUNT];
    const ndp_step_costs *costs;
    const ndp_engine *engine; /* NULL: kernels take no time */
    int64_t last;             /* the executed instruction that has slept */
} timed_device;

static inline void timed_sleep(double seconds) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    int64_t end = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec + (int64_t)(seconds * 1e9);
    t = (struct timespec){.tv_sec = end / 1000000000, .tv_nsec = end % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {
    }
}

static inline ndp_status timed_run(const ndp_op_call *call) {
    timed_device *t = (timed_device *)call->exec->device->user;
    const ndp_engine *e = t->engine;
    if (!e || e->at.executed == t->last)
        return NDP_OK;
    t->last = e->at.executed;
    const ndp_instr *in = &e->program.instrs[e->at.at];
    double seconds = 0;
    int n;
    ndp_repeats repeats;
    const ndp_call *calls = ndp_instr_calls(&e->program, in, &n, &repeats);
    for (int i = 0; i < n; i++)
        if (calls[i].kind == NDP_CALL_KERNEL)
            seconds += t->costs->seconds(t->costs->user, &e->program, in, &calls[i]);
    if (seconds > 0)
        timed_sleep(seconds);
    return NDP_OK;
}

/* Call it on the thread of the rank. `costs` is borrowed. */
static inline void timed_device_init(timed_device *t, const ndp_step_costs *costs) {
    *t = (timed_device){.device = {.name = "timed", .executes = true, .user = t, NDP_HOST_DEVICE},
                        .kernel = {.run = timed_run}};
    for (int i = 0; i < NDP_OP_COUNT; i++)
        t->table[i] = ndp_device_ref.kernels[i] ? &t->kernel : NULL;
    t->device.kernels = t->table;
    t->costs = costs;
    t->last = NDP_NONE;
    prctl(PR_SET_TIMERSLACK, 1L, 0, 0, 0); /* ns: sleeps end on time */
}

/* From now on the kernels of this engine, which was created on the device, take time. */
static inline void timed_device_start(timed_device *t, const ndp_engine *e) { t->engine = e; }

#endif
