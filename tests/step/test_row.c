/* What bench_gpu measures by (bench/row.h): each step but the last has a successor that was submitted before the host
 * waits for it; and ops are timed on the device, on `sim` without a wait of the host. */
#include "../../bench/row.h"

#include "check.h"
#include "device/cuda/cuda_load.h"
#include "ops/devices.h"
#include "step/engine_parts.h"
#include "step/tiny.h"

enum { ROWS = 8, SAMPLES = 2, STEPS = 4 };

typedef struct job {
    const ndp_model *model;
    const ndp_device *device;
    const ndp_cuda_api *plugin; /* NULL: its memory is the host's */
    ndp_status (*measure)(struct job *j, ndp_engine *e);
} job;

/* `user`: a struct timespec to wait for before each step; NULL: none. */
static ndp_status load(ndp_engine *e, void *user, int step) {
    if (user)
        nanosleep(user, NULL);
    for (int m = 0; m < SAMPLES; m++)
        tiny_batch(e, m, SAMPLES * step + m);
    return NDP_OK;
}

static ndp_status body(ndp_transport *t, void *arg) {
    job *j = arg;
    const ndp_exec exec = {.device = j->device, .threads = 1};
    ndp_engine_opts o = {.model = j->model,
                         .transport = t,
                         .step = {.exec = &exec,
                                  .accumulation = SAMPLES,
                                  .parallel = NDP_PARALLEL_INIT,
                                  .optimizer = {.name = NDP_ADAMW, .betas = {0.9, 0.95}, .eps = 1e-8, .max_norm = 1}}};
    ndp_layout one = NDP_LAYOUT_ONE;
    ndp_engine *e;
    NDP_TRY(ndp_mesh_init(&one, 0, &(ndp_mesh_facts){.kv_heads = ndp_model_kv_heads(j->model)}, &o.step.mesh));
    NDP_TRY(ndp_engine_create(&o, &e));
    tiny_fill(e);
    ndp_status st = j->measure(j, e);
    ndp_engine_destroy(e);
    return st;
}

static void run(job *j) {
    ndp_facts f = tiny_facts(false);
    ndp_model_opts mo = tiny_opts(NDP_F32, ROWS);
    ndp_model m;
    CHECK_OK(ndp_decoder_build(&f, &mo, &m));
    j->model = &m;
    CHECK_OK(ndp_local_world(1, body, j));
    ndp_model_release(&m);
}

/* Takes the device sim, or skips. */
static job on_sim(void) {
    job j = {0};
    if (ndp_device_find("sim", &j.device) != NDP_OK) {
        print_message("SKIPPED: %s\n", ndp_error_message());
        skip();
    }
    CHECK_OK(ndp_cuda_load(true, true, &j.plugin));
    return j;
}

/* ---- rows ---- */

/* A device that sees the waits for results of an engine. */
typedef struct watching {
    ndp_device device; /* first */
    const ndp_engine *engine;
    int waits, ahead; /* for results; those during which a later step was under way */
} watching;
static watching watched_device;

static ndp_status watched_drain(ndp_queue *q) {
    const ndp_engine *e = watched_device.engine;
    if (e && q == e->host.results) {
        watched_device.waits++;
        watched_device.ahead += e->host.submitted > e->host.taken; /* `taken` counts the one that is waited for */
    }
    return ndp_host_drain(q);
}

static ndp_status measure_row(job *j, ndp_engine *e) {
    const double pause = 0.02;
    struct timespec wait = {0, (long)(1e9 * pause)};
    double seconds = 0, begun = ndp_now();
    ndp_step_result last = {0};
    (void)j;
    watched_device.engine = e;
    NDP_TRY(row_of_steps(e, load, &wait, 0, STEPS, &seconds, &last));
    double took = ndp_now() - begun;
    watched_device.engine = NULL;
    NDP_CHECK(watched_device.waits == STEPS && watched_device.ahead == STEPS - 1,
              "%d waits for results, %d of them while a later step was submitted", watched_device.waits,
              watched_device.ahead);
    NDP_CHECK(seconds >= pause && seconds * (STEPS - 1) <= took - pause, "%g s a step, in %g s", seconds, took);
    NDP_CHECK(last.loss > 0 && e->host.submitted == STEPS && e->host.taken == STEPS, "%lld of %lld results were taken",
              (long long)e->host.taken, (long long)e->host.submitted);
    return NDP_OK;
}

static void steps_are_submitted_ahead(void **state) {
    (void)state;
    watched_device = (watching){.device = ndp_device_ref};
    watched_device.device.drain = watched_drain;
    run(&(job){.device = &watched_device.device, .measure = measure_row});
}

/* ---- times of ops ---- */

/* Which ops the program's kernels and collectives are. */
static void ops_of(const ndp_program *p, bool found[NDP_OP_COUNT]) {
    for (int i = 0; i < p->n; i++) {
        int n;
        ndp_repeats repeats;
        const ndp_call *calls = ndp_instr_calls(p, &p->instrs[i], &n, &repeats);
        for (int k = 0; k < n; k++)
            found[calls[k].op->id] = true;
    }
}

static ndp_status measure_ops(job *j, ndp_engine *e) {
    bool found[NDP_OP_COUNT] = {false};
    double calls[NDP_OP_COUNT], moved[NDP_OP_COUNT];
    double begun = ndp_now(), all = 0;
    long waits = j->plugin ? j->plugin->host_waits() : 0;
    NDP_TRY(row_of_ops(e, load, NULL, 0));
    double took = ndp_now() - begun;
    waits = j->plugin ? j->plugin->host_waits() - waits : 2;
    NDP_CHECK(waits == 2, "%ld host waits, and two results", waits);
    const ndp_profile *p = ndp_engine_profile(e);
    NDP_CHECK(p->steps == 1, "%lld steps in the profile", (long long)p->steps);
    ops_of(ndp_engine_program(e), found);
    ndp_program_calls(ndp_engine_program(e), calls, moved);
    for (int i = 0; i < NDP_OP_COUNT; i++) {
        NDP_CHECK(found[i] == (p->op[i] > 0), "%s: %g s", ndp_all_ops[i]->name, p->op[i]);
        NDP_CHECK(found[i] == (calls[i] > 0), "%s: %g calls", ndp_all_ops[i]->name, calls[i]);
        all += p->op[i];
    }
    NDP_CHECK(all <= took, "ops take %g s of %g s", all, took);
    return NDP_OK;
}

static void ops_are_timed_on_sim_without_waits(void **state) {
    (void)state;
    job j = on_sim();
    j.measure = measure_ops;
    run(&j);
}

static void ops_are_timed_on_the_host(void **state) {
    (void)state;
    run(&(job){.device = &ndp_device_cpu, .measure = measure_ops});
}

/* More calls than stamps: the sums are those of all calls, each for its op. */
static void stamps_are_used_again(void **state) {
    (void)state;
    enum { CALLS = 20, SLOW = 3 };
    double seconds[NDP_OP_COUNT] = {0};
    const struct timespec pause = {0, 5000000};
    ndp_device_context *c;
    ndp_queue *q;
    ndp_op_times t;
    CHECK_OK(ndp_host_open(&ndp_device_ref, &(ndp_device_opts){0}, &c));
    CHECK_OK(ndp_host_queue_create(c, &q));
    CHECK_OK(ndp_op_times_init(&t, &ndp_device_ref, c, 3, seconds));
    double begun = ndp_now();
    CHECK_OK(ndp_op_times_stamp(&t, q, NDP_NONE));
    for (int i = 0; i < CALLS; i++) {
        nanosleep(&pause, NULL);
        CHECK_OK(ndp_op_times_stamp(&t, q, i % 2 ? SLOW : NDP_NONE));
    }
    CHECK_OK(ndp_op_times_read(&t));
    double took = ndp_now() - begun;
    for (int i = 0; i < NDP_OP_COUNT; i++)
        assert_true(i == SLOW ? seconds[i] >= 0.005 * CALLS / 2 && seconds[i] <= took - 0.005 * CALLS / 2
                              : seconds[i] == 0);
    ndp_op_times_release(&t);
    ndp_host_queue_destroy(q);
    ndp_host_close(c);
}

/* A profile that is reset while its stamps are in the queue would read others' times. */
static ndp_status reset_early(job *j, ndp_engine *e) {
    ndp_step_result r;
    (void)j;
    NDP_TRY(ndp_engine_profile_reset(e, true));
    NDP_TRY(load(e, NULL, 0));
    NDP_TRY(ndp_engine_submit(e, &(ndp_step_input){.lr = 1e-3, .update_weights = true}));
    NDP_CHECK(ndp_engine_profile_reset(e, true) == NDP_EINVAL, "it was not refused");
    return ndp_engine_result(e, &r);
}

static void a_reset_waits_for_results(void **state) {
    (void)state;
    run(&(job){.device = &ndp_device_cpu, .measure = reset_early});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_submitted_ahead), cmocka_unit_test(ops_are_timed_on_sim_without_waits),
        cmocka_unit_test(ops_are_timed_on_the_host), cmocka_unit_test(stamps_are_used_again),
        cmocka_unit_test(a_reset_waits_for_results)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
