/* Schedules as lists from outside: other orders of the same micro-batches give the bits of the plain order. */
#include "guarded.h"
#include "step/tiny.h"
#include <math.h>

enum { ROWS = 20, ACCUMULATION = 4, UPDATES = 2, MOST = 64 };

typedef struct outcome {
    double loss[UPDATES], norm[UPDATES];
    double *weights;
    int64_t n;
} outcome;

typedef struct job {
    const ndp_model *model;
    const ndp_device *device;
    const ndp_schedule *schedule;
    ndp_layout layout;
    bool recompute;
    outcome *out;
} job;

static ndp_schedule list_of(ndp_planned_run *runs, int n) { return (ndp_schedule){.runs = runs, .n = n}; }

/* 1F1B of the first of three stages: three micro-batches run ahead. */
static ndp_schedule one_forward_one_backward(const ndp_model *m, ndp_planned_run *runs) {
    int n = 0, back = 0;
    for (int mb = 0; mb < ACCUMULATION; mb++) {
        runs[n++] = (ndp_planned_run){0, m->n_units, mb, NDP_ACTION_FORWARD, 0};
        if (mb >= 2)
            runs[n++] = (ndp_planned_run){0, m->n_units, back++, NDP_ACTION_BACKWARD, 0};
    }
    while (back < ACCUMULATION)
        runs[n++] = (ndp_planned_run){0, m->n_units, back++, NDP_ACTION_BACKWARD, 0};
    return list_of(runs, n);
}

/* Input gradients first, weight gradients an input gradient later, and the units in two parts. */
static ndp_schedule gradients_apart(const ndp_model *m, ndp_planned_run *runs) {
    int n = 0, half = m->n_units / 2, all = m->n_units;
    for (int mb = 0; mb < ACCUMULATION; mb++) {
        runs[n++] = (ndp_planned_run){0, half, mb, NDP_ACTION_FORWARD, 0};
        runs[n++] = (ndp_planned_run){half, all, mb, NDP_ACTION_FORWARD, 0};
    }
    for (int mb = 0; mb <= ACCUMULATION; mb++) {
        if (mb < ACCUMULATION) {
            runs[n++] = (ndp_planned_run){half, all, mb, NDP_ACTION_INPUT_GRADIENT, 0};
            runs[n++] = (ndp_planned_run){0, half, mb, NDP_ACTION_INPUT_GRADIENT, 0};
        }
        if (mb > 0) {
            runs[n++] = (ndp_planned_run){0, half, mb - 1, NDP_ACTION_WEIGHT_GRADIENT, 0};
            runs[n++] = (ndp_planned_run){half, all, mb - 1, NDP_ACTION_WEIGHT_GRADIENT, 0};
        }
    }
    return list_of(runs, n);
}

static ndp_status collect(ndp_engine *e, outcome *out) {
    const ndp_model *m = ndp_engine_model(e);
    int64_t at = 0;
    for (int b = 0; b < m->n_buffers; b++) {
        int64_t n = ndp_engine_shard(e, b)->slice;
        float *slice = malloc((size_t)n * sizeof *slice);
        NDP_TRY(ndp_engine_read(e, NDP_OWNED_MASTER, b, 0, n, 1, slice));
        out->weights = realloc(out->weights, (size_t)(at + n) * sizeof *out->weights);
        for (int64_t i = 0; i < n; i++)
            out->weights[at++] = (double)slice[i];
        free(slice);
    }
    out->n = at;
    return NDP_OK;
}

static ndp_status body(ndp_transport *t, void *arg) {
    const job *j = arg;
    outcome mine = {0};
    const ndp_exec exec = {.device = j->device, .threads = 1};
    ndp_engine_opts o = {
        .model = j->model,
        .transport = t,
        .step = {
            .exec = &exec,
            .accumulation = ACCUMULATION,
            .reshard = true,
            .recompute = j->recompute,
            .schedule = j->schedule,
            .node_ranks = 1,
            .optimizer = {.name = NDP_ADAMW, .betas = {0.9, 0.95}, .eps = 1e-8, .weight_decay = 0.1, .max_norm = 1.0}}};
    int rank = ndp_transport_rank(t);
    NDP_TRY(ndp_mesh_init(&j->layout, rank, &(ndp_mesh_facts){.kv_heads = ndp_model_kv_heads(j->model)}, &o.step.mesh));
    ndp_engine *e;
    NDP_TRY(ndp_engine_create(&o, &e));
    tiny_fill(e);
    ndp_status st = NDP_OK;
    ndp_group data = ndp_mesh_group(&o.step.mesh, NDP_GROUP_DATA);
    for (int u = 0; u < UPDATES && st == NDP_OK; u++) {
        for (int m = 0; m < ACCUMULATION; m++)
            tiny_batch(e, m, (u * ACCUMULATION + m) * data.count + data.rank);
        ndp_step_result r;
        st = ndp_engine_step(e, 1e-2, u, true, &r);
        mine.loss[u] = r.loss, mine.norm[u] = r.grad_norm;
    }
    if (st == NDP_OK)
        st = collect(e, &mine);
    if (rank == 0)
        *j->out = mine;
    else
        free(mine.weights);
    ndp_engine_destroy(e);
    return st;
}

static outcome run(job *j) {
    outcome out = {0};
    int world = 1;
    for (int i = 0; i < NDP_AXES; i++)
        world *= j->layout.size[i];
    j->out = &out;
    j->device = guarded(&ndp_device_cpu);
    CHECK_OK(ndp_local_world(world, body, j));
    unguard(j->device);
    return out;
}

typedef ndp_schedule maker(const ndp_model *m, ndp_planned_run *runs);

/* `bound` 0: the bits; else relative to the largest difference allowed. */
static void check_orders(bool tied, ndp_layout layout, double bound) {
    static maker *const makers[] = {one_forward_one_backward, gradients_apart};
    ndp_facts f = tiny_facts(tied);
    ndp_model_opts mo = tiny_opts(NDP_F32, ROWS);
    ndp_model m;
    CHECK_OK(ndp_decoder_build(&f, &mo, &m));
    job j = {.model = &m, .layout = layout};
    outcome plain = run(&j);
    for (int i = 0; i < 2 * NDP_COUNT(makers); i++) {
        ndp_planned_run runs[MOST];
        ndp_schedule s = makers[i / 2](&m, runs);
        j.schedule = &s, j.recompute = i % 2;
        outcome other = run(&j);
        assert_int_equal(other.n, plain.n);
        for (int u = 0; u < UPDATES; u++) {
            assert_true(fabs(other.loss[u] - plain.loss[u]) <= bound * plain.loss[u]);
            assert_true(fabs(other.norm[u] - plain.norm[u]) <= 10 * bound * plain.norm[u]);
        }
        for (int64_t k = 0; k < plain.n; k++)
            if (!(fabs(other.weights[k] - plain.weights[k]) <= 1e3 * bound))
                fail_msg("schedule %d: weight %lld is %.9g, not %.9g", i, (long long)k, other.weights[k],
                         plain.weights[k]);
        free(other.weights);
    }
    free(plain.weights);
    ndp_model_release(&m);
}

static void one_rank_has_the_same_bits(void **state) {
    (void)state;
    ndp_layout l = NDP_LAYOUT_ONE;
    check_orders(false, l, 0);
}

/* The head makes a part of its gradient in its forward: of interleaved micro-batches the sum is reduced once. */
static void ranks_agree(void **state) {
    (void)state;
    ndp_layout l = NDP_LAYOUT_ONE;
    l.size[NDP_DP_SHARD] = 2, l.size[NDP_DP_REPLICATE] = 2;
    check_orders(false, l, 2e-6);
}

/* The head makes its part of a tied table's gradient in its forward, so the parts meet in another order. */
static void a_tied_table_is_summed_in_another_order(void **state) {
    (void)state;
    ndp_layout l = NDP_LAYOUT_ONE;
    check_orders(true, l, 2e-6);
    l.size[NDP_DP_SHARD] = 2;
    check_orders(true, l, 2e-6);
}

/* ---- refusals ---- */

static void lists_that_are_wrong_are_refused(void **state) {
    (void)state;
    ndp_facts f = tiny_facts(false);
    ndp_model_opts mo = tiny_opts(NDP_F32, ROWS);
    ndp_model m;
    CHECK_OK(ndp_decoder_build(&f, &mo, &m));
    const ndp_action F = NDP_ACTION_FORWARD, B = NDP_ACTION_BACKWARD, I = NDP_ACTION_INPUT_GRADIENT;
    int all = m.n_units;
    const struct {
        ndp_planned_run runs[4];
        int n;
        const char *words;
    } cases[] = {
        {{{0, all, 0, F, 0}}, 1, "lacks the input gradient of unit embed for micro-batch 0"},
        {{{0, all, 0, F, 0}, {0, all, 0, I, 0}}, 2, "lacks the weight gradient of unit embed"},
        {{{0, all, 0, B, 0}},
         1,
         "entry 0 of the schedule: the backward of unit embed for micro-batch 0 is before its forward"},
        {{{0, all, 0, F, 0}, {0, 1, 0, F, 0}},
         2,
         "entry 1 of the schedule: the forward of unit embed for micro-batch 0 twice"},
        {{{0, all, 0, F, 0}, {0, all, 0, I, 0}, {0, all, 0, B, 0}}, 3, "entry 2 of the schedule: the backward of unit"},
        {{{0, all, 1, F, 0}}, 1, "micro-batch 1 of 1"},
        {{{0, all + 1, 0, F, 0}}, 1, "entry 0 of the schedule: units 0 to"},
    };
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        ndp_schedule s = list_of((ndp_planned_run *)cases[i].runs, cases[i].n);
        CHECK_FAILS(ndp_schedule_check(&s, &m, 1), NDP_EINVAL, cases[i].words);
    }
    ndp_schedule plain;
    CHECK_OK(ndp_schedule_in_order(&m, 3, &plain));
    assert_int_equal(plain.n, 6);
    CHECK_OK(ndp_schedule_check(&plain, &m, 3));
    ndp_schedule_release(&plain);
    ndp_model_release(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_rank_has_the_same_bits), cmocka_unit_test(ranks_agree),
                                       cmocka_unit_test(a_tied_table_is_summed_in_another_order),
                                       cmocka_unit_test(lists_that_are_wrong_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
