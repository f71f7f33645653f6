/* The engine's interface: results that are taken late, and what the host reads and writes. */
#include "check.h"
#include "step/tiny.h"

enum { ROWS = 20, STEPS = 4 };

typedef struct setup {
    ndp_model model;
    ndp_transport *transport;
    ndp_engine *engine;
} setup;

static void begin(setup *s) {
    ndp_facts f = tiny_facts(false);
    ndp_model_opts mo = tiny_opts(NDP_F32, ROWS);
    CHECK_OK(ndp_decoder_build(&f, &mo, &s->model));
    CHECK_OK(ndp_transport_self(&s->transport));
    static const ndp_exec exec = {.device = &ndp_device_cpu, .threads = 1};
    ndp_engine_opts o = {
        .model = &s->model,
        .transport = s->transport,
        .step = {
            .exec = &exec,
            .accumulation = 1,
            .optimizer = {.name = NDP_ADAMW, .betas = {0.9, 0.95}, .eps = 1e-8, .weight_decay = 0.1, .max_norm = 1.0}}};
    ndp_layout one = NDP_LAYOUT_ONE;
    CHECK_OK(ndp_mesh_init(&one, 0, &(ndp_mesh_facts){.kv_heads = f.kv_heads}, &o.step.mesh));
    CHECK_OK(ndp_engine_create(&o, &s->engine));
    tiny_fill(s->engine);
    tiny_batch(s->engine, 0, 0);
}

static void end(setup *s) {
    ndp_engine_destroy(s->engine);
    ndp_transport_destroy(s->transport);
    ndp_model_release(&s->model);
}

static void submit(setup *s, int64_t update) {
    tiny_batch(s->engine, 0, update);
    CHECK_OK(ndp_engine_submit(s->engine, &(ndp_step_input){.lr = 1e-2, .update = update, .update_weights = true}));
}

/* A step is submitted before the result of the one before it is taken: the same results, in order. */
static void results_may_be_taken_one_step_late(void **state) {
    (void)state;
    setup a, b;
    ndp_step_result want[STEPS], got[STEPS];
    begin(&a), begin(&b);
    for (int u = 0; u < STEPS; u++) {
        tiny_batch(a.engine, 0, u);
        CHECK_OK(ndp_engine_step(a.engine, 1e-2, u, true, &want[u]));
    }
    for (int u = 0; u < STEPS; u++) {
        submit(&b, u);
        if (u > 0)
            CHECK_OK(ndp_engine_result(b.engine, &got[u - 1]));
    }
    CHECK_OK(ndp_engine_result(b.engine, &got[STEPS - 1]));
    for (int u = 0; u < STEPS; u++)
        assert_true(got[u].loss == want[u].loss && got[u].grad_norm == want[u].grad_norm &&
                    got[u].tokens == want[u].tokens);
    assert_true(want[0].loss != want[STEPS - 1].loss);
    end(&a), end(&b);
}

static void pending_steps_are_limited(void **state) {
    (void)state;
    setup s;
    ndp_step_result r;
    begin(&s);
    CHECK_FAILS(ndp_engine_result(s.engine, &r), NDP_EBUG, "no step is pending");
    for (int u = 0; u < NDP_STEPS_PENDING; u++)
        submit(&s, u);
    CHECK_FAILS(
        ndp_engine_submit(s.engine, &(ndp_step_input){.lr = 1e-2, .update = NDP_STEPS_PENDING, .update_weights = true}),
        NDP_EBUG, "steps are pending");
    end(&s);
}

/* update_weights = false: weights and state keep their bits, and the loss and the norm are made. */
static void a_step_may_leave_the_weights(void **state) {
    (void)state;
    setup s;
    ndp_step_result r;
    begin(&s);
    for (int b = 0; b < s.model.n_buffers; b++) {
        int64_t n = ndp_engine_shard(s.engine, b)->slice;
        float *before = malloc((size_t)n * sizeof *before), *after = malloc((size_t)n * sizeof *after);
        CHECK_OK(ndp_engine_read(s.engine, NDP_OWNED_MASTER, b, 0, n, 1, before));
        CHECK_OK(ndp_engine_step(s.engine, 1e-2, 0, false, &r));
        CHECK_OK(ndp_engine_read(s.engine, NDP_OWNED_MASTER, b, 0, n, 1, after));
        assert_memory_equal(before, after, (size_t)n * sizeof *before);
        assert_true(r.loss > 0 && r.grad_norm > 0);
        free(before);
        free(after);
    }
    end(&s);
}

/* Elements that lie apart, as those of a transposed tensor do. */
static void elements_apart(void **state) {
    (void)state;
    enum { N = 5, STRIDE = 7, FIRST = 3 };
    setup s;
    begin(&s);
    float values[N] = {1, 2, 3, 4, 5}, apart[N], whole[FIRST + N * STRIDE], old[FIRST + N * STRIDE];
    CHECK_OK(ndp_engine_read(s.engine, NDP_OWNED_MASTER, 1, 0, NDP_COUNT(old), 1, old));
    CHECK_OK(ndp_engine_write(s.engine, NDP_OWNED_MASTER, 1, FIRST, N, STRIDE, values));
    CHECK_OK(ndp_engine_read(s.engine, NDP_OWNED_MASTER, 1, FIRST, N, STRIDE, apart));
    CHECK_OK(ndp_engine_read(s.engine, NDP_OWNED_MASTER, 1, 0, NDP_COUNT(whole), 1, whole));
    assert_memory_equal(apart, values, sizeof values);
    for (int i = 0; i < NDP_COUNT(whole); i++) {
        bool written = i >= FIRST && (i - FIRST) % STRIDE == 0;
        assert_true(whole[i] == (written ? values[(i - FIRST) / STRIDE] : old[i]));
    }
    end(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_may_be_taken_one_step_late), cmocka_unit_test(pending_steps_are_limited),
        cmocka_unit_test(a_step_may_leave_the_weights), cmocka_unit_test(elements_apart)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
