/* Collectives on a device's queues (comm/node/lane.h), by `sim`: every axis, and products of them, gives the bits of
 * staged collectives, in whatever order the queues run; and the host waits once a step. The seed of the random order is
 * printed; NDP_TEST_SEED sets it. */
#include "step/layouts.h"

#include "device/cuda/cuda_load.h"
#include "ops/devices.h"
#include <time.h>

static const ndp_device *sim(void) {
    const ndp_device *d = NULL;
    if (ndp_device_find("sim", &d) != NDP_OK) {
        print_message("SKIPPED: %s\n", ndp_error_message());
        skip();
    }
    return d;
}

static void check_equal(const ndp_model *m, const result *a, const result *b, const char *text) {
    size_t bytes = (size_t)model_elements(m) * sizeof(double);
    if (memcmp(a->loss, b->loss, sizeof a->loss) != 0 || memcmp(a->norm, b->norm, sizeof a->norm) != 0 ||
        memcmp(a->grads, b->grads, bytes) != 0 || memcmp(a->weights, b->weights, bytes) != 0)
        fail_msg("%s: not the bits of staged collectives; losses %.17g, %.17g", text, a->loss[2], b->loss[2]);
}

static void seed_is(uint64_t seed) {
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)seed);
    if (seed)
        setenv("NDP_SIM_SEED", text, 1);
    else
        unsetenv("NDP_SIM_SEED");
}

/* Staged; then on queues, in the order of need and in a random order. */
static void check_way(const ndp_model *m, way w, uint64_t seed) {
    char text[256], whole[320];
    w.staged = true;
    result staged = run(m, sim(), &w);
    w.staged = false;
    for (uint64_t i = 0; i < 2; i++) {
        seed_is(i ? seed : 0);
        result queued = run(m, sim(), &w);
        snprintf(whole, sizeof whole, "%s, NDP_SIM_SEED=%llu", text_of(&w, text, sizeof text),
                 (unsigned long long)(i ? seed : 0));
        check_equal(m, &queued, &staged, whole);
        release(&queued);
    }
    seed_is(0);
    release(&staged);
}

static void check_axes(ndp_dtype compute) {
    static const int sizes[][5] = {{1, 2, 1, 1, 1}, {2, 1, 1, 1, 1}, {2, 2, 1, 1, 1}, {1, 1, 1, 1, 2}, {1, 1, 2, 1, 1},
                                   {1, 1, 1, 2, 1}, {1, 1, 2, 1, 2}, {1, 2, 1, 2, 1}, {1, 2, 2, 1, 2}};
    const char *given = getenv("NDP_TEST_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    ndp_facts f = tiny_facts(compute == NDP_BF16);
    ndp_model_opts mo = tiny_opts(compute, ROWS);
    ndp_model m;
    sim();
    print_message("NDP_TEST_SEED=%llu\n", (unsigned long long)seed);
    CHECK_OK(ndp_decoder_build(&f, &mo, &m));
    for (int i = compute == NDP_BF16 ? 5 : 0; i < NDP_COUNT(sizes); i++)
        for (int k = short_or_all(i % 2, 0), end = short_or_all(k + 1, 2); k < end; k++) {
            way w = {.samples = 4, .reshard = k, .recompute = k, .gathered = i % 2};
            w.parallel = (ndp_parallel){k, k ? NDP_CP_ALL_GATHER : NDP_CP_RING, true, 0, 0, 1.5};
            memcpy(w.size, sizes[i], sizeof w.size);
            check_way(&m, w, seed);
        }
    ndp_model_release(&m);
}

static void axes_fp32(void **state) { (void)state, check_axes(NDP_F32); }
static void axes_bf16(void **state) { (void)state, check_axes(NDP_BF16); }

/* ---- waits of the host ---- */

typedef struct waits_job {
    const ndp_model *model;
    const ndp_device *device;
    const ndp_cuda_api *plugin;
    bool staged;
    int collectives; /* begun in a step */
    long waits;      /* of all ranks, in STEPS steps */
} waits_job;
enum { RANKS = 8, STEPS = 3 };

static ndp_status run_waits(ndp_transport *t, void *arg) {
    waits_job *j = arg;
    int rank = ndp_transport_rank(t);
    const ndp_exec exec = {.device = j->device, .threads = 1, .share = true, .staged = j->staged};
    ndp_engine_opts o = {.model = j->model,
                         .transport = t,
                         .step = {.exec = &exec,
                                  .accumulation = 1,
                                  .reshard = true,
                                  .parallel = NDP_PARALLEL_INIT,
                                  .optimizer = {.name = NDP_ADAMW, .betas = {0.9, 0.95}, .eps = 1e-8, .max_norm = 1}}};
    ndp_layout layout = NDP_LAYOUT_ONE;
    layout.size[NDP_DP_SHARD] = RANKS;
    ndp_group all = {0, 1, RANKS, rank};
    ndp_comm *world;
    ndp_engine *e;
    NDP_TRY(ndp_comm_create(t, all, "test", &world));
    NDP_TRY(ndp_mesh_init(&layout, rank, &(ndp_mesh_facts){.kv_heads = ndp_model_kv_heads(j->model)}, &o.step.mesh));
    NDP_TRY(ndp_engine_create(&o, &e));
    tiny_fill(e);
    NDP_TRY(ndp_barrier(world));
    long before = j->plugin->host_waits();
    NDP_TRY(ndp_barrier(world));
    for (int u = 0; u < STEPS; u++) {
        ndp_step_result r;
        tiny_batch(e, 0, rank);
        NDP_TRY(ndp_engine_step(e, 1e-3, u, true, &r));
    }
    NDP_TRY(ndp_barrier(world));
    const ndp_program *p = ndp_engine_program(e);
    int begun = 0;
    for (int i = 0; i < p->n; i++)
        begun += p->instrs[i].code == NDP_DO_CALL && p->instrs[i].call.kind == NDP_CALL_BEGIN;
    if (rank == 0)
        j->waits = j->plugin->host_waits() - before, j->collectives = begun;
    NDP_TRY(ndp_barrier(world));
    ndp_engine_destroy(e);
    ndp_comm_destroy(world);
    return NDP_OK;
}

/* The instructions of Llama 3.1 8B on dp_shard 8, with tiny widths: staged, each begin waits; on queues, none does. */
static void one_host_wait_a_step(void **state) {
    (void)state;
    waits_job j = {.device = sim()};
    CHECK_OK(ndp_cuda_load(true, true, &j.plugin));
    ndp_facts f = tiny_facts(false);
    f.layers = 32;
    ndp_model_opts mo = tiny_opts(NDP_F32, 8);
    ndp_model m;
    CHECK_OK(ndp_decoder_build(&f, &mo, &m));
    j.model = &m;
    for (int k = 0; k < 2; k++) {
        j.staged = k == 0;
        CHECK_OK(ndp_local_world(RANKS, run_waits, &j));
        double each = (double)j.waits / RANKS / STEPS;
        print_message("%s: %d begins and %.2f host waits a step\n", k ? "on queues" : "staged", j.collectives, each);
        assert_true(k ? each <= 1 : each >= j.collectives);
    }
    ndp_model_release(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(axes_fp32), cmocka_unit_test(one_host_wait_a_step)};
    const struct CMUnitTest more[] = {cmocka_unit_test(axes_bf16)};
    return cmocka_run_group_tests(tests, NULL, NULL) ||
           (short_or_all(0, 1) && cmocka_run_group_tests(more, NULL, NULL));
}
