/* Proof 2 of the losses of routers: what tests/golden/make_router.py computes of the mixtures there in fp64: the
 * balance loss and the z-loss, every gradient, and 20 updates. In fp64 on ref and in fp32 on cpu, with one sample in a
 * micro-batch or all of them, and spread over each axis; and that a mistake of a router turns it red. */
#include "train/golden_logits.h"

#include "broken_routers.h"
#include "step/engine.h"
#include <math.h>

enum { CUTS = 5 }; /* of job.size: dp_replicate, dp_shard, cp, sp, tp */

typedef struct job {
    const golden *g; /* `expected` is router.safetensors */
    const double *balance, *z;
    const ndp_model *model;
    const ndp_device *device;
    ndp_dtype type;
    int size[CUTS], together; /* samples of a micro-batch */
    double bound;             /* of gradients, by the norm of their tensor; numbers are closer */
} job;

static void fill(const job *j, ndp_engine *e, int64_t update, int64_t rank, int64_t ranks) {
    enum { MOST = 1024 };
    const golden *g = j->g;
    int32_t positions[MOST], starts[MOST], samples[MOST];
    int64_t rows = g->length * j->together;
    assert_true(rows <= MOST);
    for (int64_t t = 0; t < rows; t++) {
        samples[t] = (int32_t)(t / g->length);
        starts[t] = (int32_t)(t / g->length * g->length);
        positions[t] = (int32_t)(t % g->length);
    }
    for (int64_t m = 0; m < g->samples / ranks / j->together; m++) {
        int64_t at = (update * g->samples + (m * ranks + rank) * j->together) * g->length;
        CHECK_OK(ndp_engine_load(e, (int)m,
                                 &(ndp_micro_batch){.tokens = g->ids + at,
                                                    .labels = g->labels + at,
                                                    .positions = positions,
                                                    .starts = starts,
                                                    .samples = samples}));
    }
}

static ndp_status compare_piece(void *user, const ndp_owned_run *run) {
    const job *j = user;
    char name[NDP_SEGMENT_NAME + 8];
    double norm, distance = gradient_distance(j->g, run, name, &norm);
    return distance <= j->bound * norm
               ? NDP_OK
               : NDP_FAIL(NDP_EBUG, "%s %s: off by %.3g of its norm %.3g", j->g->name, name, distance / norm, norm);
}

static ndp_status check_number(const job *j, const char *what, int64_t u, double have, double want, double bound) {
    return fabs(have / want - 1) <= bound
               ? NDP_OK
               : NDP_FAIL(NDP_EBUG, "%s update %d: %s %.12g, expected %.12g", j->g->name, (int)u, what, have, want);
}

static ndp_status train(const job *j, ndp_engine *e, int64_t rank, int64_t ranks) {
    double close = j->type == NDP_F64 ? 1e-9 : 3e-5;
    NDP_TRY(ndp_weights_load(e, j->g->folder));
    for (int64_t u = 0; u < j->g->updates; u++) {
        ndp_step_result r;
        fill(j, e, u, rank, ranks);
        NDP_TRY(ndp_engine_step(e, 1e-3, u, true, &r));
        NDP_TRY(check_number(j, "loss", u, r.loss, j->g->losses[u], close));
        NDP_TRY(check_number(j, "balance loss", u, r.balance, j->balance[u], close));
        NDP_TRY(check_number(j, "z-loss", u, r.z_loss, j->z[u], close));
        NDP_TRY(check_number(j, "grad_norm", u, r.grad_norm, j->g->norms[u], 10 * close));
        if (u == 0)
            NDP_TRY(ndp_engine_runs(e, NDP_OWNED_GRAD, compare_piece, (void *)j));
    }
    return NDP_OK;
}

static ndp_status body(ndp_transport *t, void *arg) {
    const job *j = arg;
    const ndp_exec exec = {.device = j->device, .threads = 1, .share = true};
    ndp_layout layout = NDP_LAYOUT_ONE;
    ndp_engine_opts o = {
        .model = j->model,
        .step =
            {.parallel = NDP_PARALLEL_INIT,
             .exec = &exec,
             .reshard = true,
             .recompute = j->size[0] > 1,
             .optimizer = {.name = NDP_ADAMW, .betas = {0.9, 0.95}, .eps = 1e-8, .weight_decay = 0.1, .max_norm = 1.0}},
        .transport = t};
    for (int k = 0; k < CUTS; k++)
        layout.size[NDP_DP_REPLICATE + k] = j->size[k];
    NDP_TRY(ndp_mesh_init(&layout, ndp_transport_rank(t), &(ndp_mesh_facts){.kv_heads = ndp_model_kv_heads(j->model)},
                          &o.step.mesh));
    ndp_group data = ndp_mesh_group(&o.step.mesh, NDP_GROUP_DATA);
    o.step.accumulation = (int)j->g->samples / data.count / j->together;
    ndp_engine *e;
    NDP_TRY(ndp_engine_create(&o, &e));
    ndp_status st = train(j, e, data.rank, data.count);
    ndp_engine_destroy(e);
    return st;
}

static ndp_status run(const golden *g, const job *with) {
    job j = *with;
    ndp_model_opts mo = golden_opts(g, NDP_MODEL_TRAIN, j.type);
    double *coefficients = read_all(g, "coefficients", NDP_F64, NULL);
    ndp_model m;
    int world = 1;
    mo.rows = g->length * j.together, mo.samples = j.together;
    mo.router = (ndp_router_opts){NDP_BALANCE_SEQUENCE, coefficients[0], coefficients[1], 0};
    CHECK_OK(ndp_decoder_build(&g->facts, &mo, &m));
    j.model = &m;
    j.bound = j.type == NDP_F64 ? 2e-7 : 2e-5;
    for (int k = 0; k < CUTS; k++)
        world *= j.size[k];
    ndp_status st = ndp_local_world(world, body, &j);
    ndp_model_release(&m);
    free(coefficients);
    return st;
}

/* router.safetensors in place of expected.safetensors, and its numbers of updates. */
static void open_router(golden *g, job *j, const char *name, char *folder, size_t size) {
    char path[1100];
    open_golden(g, name, golden_folder(name, folder, size));
    ndp_safetensors_close(g->expected);
    snprintf(path, sizeof path, "%s/router.safetensors", folder);
    CHECK_OK(ndp_safetensors_open(path, &g->expected));
    free(g->losses);
    free(g->norms);
    g->losses = read_all(g, "losses", NDP_F64, NULL);
    g->norms = read_all(g, "grad_norms", NDP_F64, NULL);
    *j = (job){.g = g, .balance = read_all(g, "balance", NDP_F64, NULL), .z = read_all(g, "z", NDP_F64, NULL)};
}

static void close_router(golden *g, job *j) {
    free((void *)j->balance);
    free((void *)j->z);
    close_golden(g);
}

static void router_losses(void **state) {
    static const int sizes[][CUTS] = {{1, 1, 1, 1, 1}, {2, 1, 1, 1, 1}, {1, 2, 1, 1, 1}, {1, 1, 2, 1, 1},
                                      {1, 1, 1, 2, 1}, {1, 1, 1, 1, 2}, {1, 1, 2, 1, 2}};
    char folder[1024];
    golden g;
    job j;
    open_router(&g, &j, *state, folder, sizeof folder);
    for (int i = 0; i < 2 * NDP_COUNT(sizes); i++) {
        memcpy(j.size, sizes[i / 2], sizeof j.size);
        j.type = i % 2 ? NDP_F32 : NDP_F64;
        j.device = i % 2 ? &ndp_device_cpu : &ndp_device_ref;
        j.together = i / 2 % 3 == 1 ? 1 : (int)g.samples / (j.size[0] * j.size[1]);
        CHECK_OK(run(&g, &j));
    }
    close_router(&g, &j);
}

/* On all samples together, and on rows over five ranks, 24 padded to 30; without a mistake both pass. */
static void mistakes_turn_it_red(void **state) {
    (void)state;
    char folder[1024];
    golden g;
    job j;
    broken_device broken;
    open_router(&g, &j, "mixtral", folder, sizeof folder);
    g.updates = 2;
    j.type = NDP_F64;
    for (int i = -1; i < NDP_COUNT(router_mistakes); i++)
        for (int few = 0; few < 2; few++) {
            const router_mistake *m = i < 0 ? NULL : &router_mistakes[i];
            memcpy(j.size, few ? (const int[]){1, 1, 5, 1, 1} : (const int[]){1, 1, 1, 1, 1}, sizeof j.size);
            j.together = few ? 1 : (int)g.samples;
            j.device = break_device(&broken, m);
            bool red = run(&g, &j) != NDP_OK;
            if (red != (m && (few ? m->few : m->many)))
                fail_msg("%s, %s: %s", m ? m->name : "no mistake", few ? "few rows" : "many rows",
                         red ? ndp_error_message() : "passes");
        }
    close_router(&g, &j);
}

/* Options that the model cannot follow; and without options, what its configuration asks for. */
static void options(void **state) {
    (void)state;
    static const struct {
        const char *model;
        ndp_router_opts router;
        const char *words; /* NULL: it is built */
        int losses;        /* layers with losses */
    } cases[] = {{"qwen3", {.z_loss = 0.1}, "no mixture layers", 0},
                 {"qwen3", {.balance = NDP_BALANCE_SEQUENCE}, "no mixture layers", 0},
                 {"qwen3", {.balance = NDP_BALANCE_NONE}, NULL, 0},
                 {"glm4-moe", {.balance = NDP_BALANCE_SEQUENCE}, "and those of glm4_moe are of sigmoids: remove", 0},
                 {"glm4-moe", {.z_loss = 0.1}, "are losses of softmax routers", 0},
                 {"glm4-moe", {0}, NULL, 0},
                 {"glm4-moe", {.bias_rate = 1e-3}, NULL, 0},
                 {"qwen3-moe", {.bias_rate = 1e-3}, "a model of qwen3_moe has none: remove it", 0},
                 {"qwen3", {.bias_rate = 1e-3}, "moe.bias_rate changes a bias", 0},
                 {"qwen3-moe", {0}, NULL, 0},
                 {"qwen3-moe", {.balance = NDP_BALANCE_SEQUENCE}, NULL, 2},
                 {"qwen3-moe", {.z_loss = 1e-3}, NULL, 2}};
    char folder[1024];
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        golden g;
        ndp_model m;
        open_golden(&g, cases[i].model, golden_folder(cases[i].model, folder, sizeof folder));
        ndp_model_opts mo = golden_opts(&g, NDP_MODEL_TRAIN, NDP_F32);
        mo.router = cases[i].router;
        ndp_status st = ndp_decoder_build(&g.facts, &mo, &m);
        if (cases[i].words) {
            assert_true(st == NDP_EINVAL && strstr(ndp_error_message(), cases[i].words));
        } else {
            CHECK_OK(st);
            assert_int_equal(ndp_model_router_losses(&m), cases[i].losses);
            ndp_model_release(&m);
        }
        close_golden(&g);
    }
}

#define MODEL(folder)                                                                                                  \
    { folder, router_losses, NULL, NULL, (void *)folder }

int main(void) {
    const struct CMUnitTest tests[] = {MODEL("mixtral"),
                                       MODEL("qwen3-moe"),
                                       MODEL("olmoe"),
                                       MODEL("qwen2-moe"),
                                       cmocka_unit_test(mistakes_turn_it_red),
                                       cmocka_unit_test(options)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
