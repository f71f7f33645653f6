/* The guard (guard_device.h) keeps the host out of an engine's memory, and kernels out of the host's; else it gives
 * the results of the device that it wraps. */
#include "guarded.h"
#include "step/engine_parts.h"
#include "step/tiny.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROWS = 13 };

typedef struct setup {
    ndp_exec exec;
    ndp_transport *transport;
    ndp_model model;
    ndp_engine *engine;
} setup;

static void begin(setup *s, const ndp_device *device) {
    ndp_facts f = tiny_facts(false);
    ndp_model_opts mo = tiny_opts(NDP_F32, ROWS);
    ndp_layout one = NDP_LAYOUT_ONE;
    s->exec = (ndp_exec){.device = device, .threads = 2};
    CHECK_OK(ndp_decoder_build(&f, &mo, &s->model));
    CHECK_OK(ndp_transport_self(&s->transport));
    ndp_engine_opts o = {.model = &s->model,
                         .step = {.parallel = NDP_PARALLEL_INIT,
                                  .exec = &s->exec,
                                  .accumulation = 2,
                                  .recompute = true,
                                  .optimizer = {.name = NDP_ADAMW, .betas = {0.9, 0.95}, .eps = 1e-8, .max_norm = 1.0}},
                         .transport = s->transport};
    CHECK_OK(ndp_mesh_init(&one, 0, &(ndp_mesh_facts){.kv_heads = f.kv_heads}, &o.step.mesh));
    CHECK_OK(ndp_engine_create(&o, &s->engine));
    tiny_fill(s->engine);
    for (int m = 0; m < o.step.accumulation; m++)
        tiny_batch(s->engine, m, m);
}

static void end(setup *s) {
    ndp_engine_destroy(s->engine);
    ndp_transport_destroy(s->transport);
    ndp_model_release(&s->model);
    unguard(s->exec.device);
}

/* Does a process that reads or writes there die of a SIGSEGV? cmocka's handler stays out of it. */
static bool access_dies(volatile char *at, bool write) {
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        char seen = *at;
        if (write)
            *at = seen;
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
}

/* All that an engine has on its device: blocks of its arena, and memory mapped for caches. */
static void host_accesses_die(void **state) {
    (void)state;
    setup plain, s;
    ndp_step_result r;
    void *mapped;
    begin(&s, guarded(&ndp_device_ref));
    begin(&plain, &ndp_device_ref);
    CHECK_OK(ndp_engine_map(s.engine, 100, &mapped));
    for (int step = 0; step < 2; step++) {
        for (int i = 0; i < s.engine->program.n_blocks; i++)
            assert_true(access_dies(ndp_engine_at(s.engine, (ndp_address){i, 0}), step));
        assert_true(access_dies(mapped, step));
        assert_true(access_dies((char *)mapped + 99, step));
        CHECK_OK(ndp_engine_step(s.engine, 1e-2, step, true, &r));
    }
    assert_false(access_dies(ndp_engine_at(plain.engine, plain.engine->program.scalars), true));
    assert_false(access_dies(s.engine->host.batches, true));
    end(&plain);
    end(&s);
}

static void results_are_those_of_the_device(void **state) {
    (void)state;
    const ndp_device *const devices[] = {&ndp_device_cpu, &ndp_device_ref};
    for (int d = 0; d < NDP_COUNT(devices); d++) {
        setup s[2];
        begin(&s[0], devices[d]);
        begin(&s[1], guarded(devices[d]));
        for (int u = 0; u < 3; u++) {
            ndp_step_result r[2];
            for (int i = 0; i < 2; i++)
                CHECK_OK(ndp_engine_step(s[i].engine, 1e-2, u, true, &r[i]));
            assert_true(r[0].loss == r[1].loss && r[0].grad_norm == r[1].grad_norm && r[0].tokens == r[1].tokens);
        }
        end(&s[0]);
        end(&s[1]);
    }
}

/* A kernel that is given memory of the host, as a device with memory of its own could not read it. */
static void addresses_of_the_host_are_refused(void **state) {
    (void)state;
    setup s;
    float mine[4] = {0};
    begin(&s, guarded(&ndp_device_ref));
    ndp_exec exec = {.device = s.exec.device, .threads = 1};
    ndp_view view = {.data = mine, .dtype = NDP_F32, .rows = 1, .cols = 4, .ld = 4};
    ndp_op_call call = {.op = &ndp_op_zero, .attr = &(ndp_op_attr){0}, .exec = &exec, .queue = s.engine->queue};
    call.in[0] = call.out[0] = view;
    CHECK_FAILS(s.exec.device->kernels[NDP_OP_zero]->run(&call), NDP_EBUG, "input 0 of zero");
    end(&s);
}

/* A kernel of rank 0 that is given memory of rank 1. */
static void memory_of_other_ranks_is_refused(void **state) {
    (void)state;
    const ndp_device *guard = guarded(&ndp_device_ref);
    ndp_device_context *contexts[2];
    ndp_queue *queues[2];
    void *memory[2];
    for (int r = 0; r < 2; r++) {
        CHECK_OK(guard->open(guard, &(ndp_device_opts){.local_rank = r}, &contexts[r]));
        CHECK_OK(guard->queue_create(contexts[r], &queues[r]));
        CHECK_OK(guard->memory_map(contexts[r], 64, NDP_MEMORY_DEVICE, &memory[r]));
    }
    ndp_exec exec = {.device = guard, .threads = 1};
    for (int r = 0; r < 2; r++) {
        ndp_view view = {.data = memory[r], .dtype = NDP_F32, .rows = 1, .cols = 4, .ld = 4};
        ndp_op_call call = {.op = &ndp_op_zero, .attr = &(ndp_op_attr){0}, .exec = &exec, .queue = queues[0]};
        call.in[0] = call.out[0] = view;
        if (r == 0)
            CHECK_OK(guard->kernels[NDP_OP_zero]->run(&call));
        else
            CHECK_FAILS(guard->kernels[NDP_OP_zero]->run(&call), NDP_EBUG, "is not memory of the rank's device");
    }
    for (int r = 0; r < 2; r++) {
        guard->memory_unmap(contexts[r], memory[r], 64, NDP_MEMORY_DEVICE);
        guard->queue_destroy(queues[r]);
        guard->close(contexts[r]);
    }
    unguard(guard);
}

static void what_cannot_be_guarded_is_refused(void **state) {
    (void)state;
    ndp_device *none = NULL;
    const ndp_device *guard = guarded(&ndp_device_ref);
    CHECK_FAILS(ndp_guard_create(&ndp_device_null, &none), NDP_EBUG, "a guard around null");
    CHECK_FAILS(ndp_guard_create(guard, &none), NDP_EBUG, "a guard around guard");
    assert_null(none);
    unguard(guard);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(host_accesses_die), cmocka_unit_test(results_are_those_of_the_device),
        cmocka_unit_test(addresses_of_the_host_are_refused), cmocka_unit_test(memory_of_other_ranks_is_refused),
        cmocka_unit_test(what_cannot_be_guarded_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
