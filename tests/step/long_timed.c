/* Schedules on a timed device, with real messages between four ranks: steps take as long as theory and the simulator
 * say, to 3%. */
#include "step/pipelines.h"
#include "step/timeline.h"
#include "timed_device.h"

#include <math.h>

enum { RANKS = 4, MICRO_BATCHES = 8, STEPS = 3, TRIES = 5 };
static const double unit = 8e-3; /* seconds of F = I = W */

typedef struct timed_job {
    const pipeline_setup *setup;
    const ndp_step_costs *costs;
    ndp_timeline line; /* of the shortest step so far, of all ranks */
    double step;
} timed_job;

/* Rank 0 keeps the timeline of the shortest step: on a machine that does other things too, others are longer. */
static ndp_status keep_shortest(timed_job *j, const ndp_engine *e, ndp_comm *world) {
    ndp_timeline line = {0};
    int64_t n;
    const ndp_instr_time *times = ndp_engine_recorded(e, &n);
    NDP_TRY(ndp_timeline_add(&line, ndp_engine_program(e), times, n));
    NDP_TRY(ndp_timeline_gather(&line, world, true));
    double step = ndp_timeline_rank(&line, 0).step;
    bool keep = ndp_comm_rank(world) == 0 && (j->step == 0 || step < j->step);
    ndp_timeline_release(keep ? &j->line : &line);
    if (keep)
        j->line = line, j->step = step;
    return NDP_OK;
}

static ndp_status timed_rank(ndp_transport *t, void *arg) {
    timed_job *j = arg;
    timed_device device;
    ndp_engine *e;
    ndp_comm *world;
    ndp_step_result result;
    ndp_engine_opts o = pipeline_opts(j->setup, ndp_transport_rank(t));
    timed_device_init(&device, j->costs);
    o.transport = t;
    ndp_exec exec = {.device = &device.device, .threads = 1};
    o.step.exec = &exec;
    NDP_TRY(ndp_engine_create(&o, &e));
    NDP_TRY(ndp_comm_create(t, (ndp_group){0, 1, ndp_transport_world(t), ndp_transport_rank(t)}, "test", &world));
    NDP_TRY(ndp_engine_record(e));
    timed_device_start(&device, e);
    for (int step = 0; step < STEPS; step++) {
        NDP_TRY(ndp_barrier(world));
        NDP_TRY(ndp_engine_step(e, 1e-3, step, true, &result));
        NDP_TRY(keep_shortest(j, e, world));
    }
    ndp_comm_destroy(world);
    ndp_engine_destroy(e);
    return NDP_OK;
}

/* Seconds of all but computing, in the timeline's step, on the rank that computes longest. */
static double idle_of(const ndp_timeline *line, double *busy) {
    double step = 0;
    *busy = 0;
    for (int i = 0; i < line->n_ranks; i++) {
        const ndp_rank_time r = ndp_timeline_rank(line, i);
        double sum = 0;
        for (int k = 0; k <= NDP_PART_UPDATE; k++)
            sum += r.seconds[k];
        *busy = fmax(*busy, sum);
        step = r.step;
    }
    return step - *busy;
}

/* The idle units of a step with 24 units of work on each rank. */
static void check_schedule(ndp_pipeline_kind kind, double theory) {
    int v = ndp_pipeline_table[kind].fewest;
    pipeline_setup s;
    stage_costs c = {unit / v, unit / v, unit / v, 0, true};
    ndp_step_costs costs = {.seconds = stage_seconds, .user = &c};
    ndp_simulation t;
    double busy, idle = 0, step = 0, work = 3 * MICRO_BATCHES;
    pipeline_begin(&s, kind, RANKS, v, MICRO_BATCHES);
    CHECK_OK(ndp_simulate(s.programs, RANKS, &costs, &t));
    double simulated = t.makespan / unit - work;
    timed_job j = {.setup = &s, .costs = &costs};
    for (int try = 0; try < TRIES; try++) {
        CHECK_OK(ndp_local_world(RANKS, timed_rank, &j));
        idle = idle_of(&j.line, &busy) / unit;
        step = j.step / unit;
        if (fabs(step / (work + theory) - 1) <= 0.03)
            break;
    }
    printf("  %-12s idle: theory %4.1f, simulated %4.1f, timed %5.2f; step: theory %4.1f, timed %5.2f (%+.1f%%)\n",
           ndp_pipeline_table[kind].name, theory, simulated, idle, work + theory, step,
           100 * (step / (work + theory) - 1));
    assert_true(fabs(simulated - theory) < 1e-9);
    assert_true(SANITIZED || fabs(step / (work + theory) - 1) <= 0.03); /* sanitizers take time as well */
    ndp_timeline_release(&j.line);
    ndp_simulation_release(&t);
    pipeline_end(&s);
}

/* Proof: 4 ranks, 8 micro-batches, F = I = W. */
static void steps_take_the_time_of_theory(void **state) {
    (void)state;
    check_schedule(NDP_PIPELINE_GPIPE, 9);
    check_schedule(NDP_PIPELINE_1F1B, 9);
    check_schedule(NDP_PIPELINE_INTERLEAVED, 4.5);
    check_schedule(NDP_PIPELINE_ZERO_BUBBLE, 3);
    check_schedule(NDP_PIPELINE_ZBV, 1.5);
    check_schedule(NDP_PIPELINE_DUALPIPEV, 1.5);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(steps_take_the_time_of_theory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
