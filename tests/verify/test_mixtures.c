/* Proof 3 for mixtures of experts, a sample of it (all of it: long_mixtures). That flips are seen: a layout whose
 * routers see other logits than one rank's, and tables of choices by hand. That a layout which flips nothing does the
 * same to the last bit, whether it is given its choices or makes them. */
#include "verify/mixtures.h"
#include "verify/verify.h"

enum { FEW_STEPS = 3 };

/* Ranks of tp that have all rows, of which each routes its own. */
static const way sliced[] = {{.tp = 2, .ep = 2, .global = 6, .accumulation = 3, .threads = 1, .whole_rows = true},
                             {.cp = 2,
                              .sp = 2,
                              .tp = 2,
                              .ep = 4,
                              .global = 6,
                              .accumulation = 1,
                              .threads = 1,
                              .whole_rows = true,
                              .recompute = 1},
                             {.replicate = 2,
                              .tp = 4,
                              .ep = 4,
                              .global = 6,
                              .accumulation = 3,
                              .threads = 1,
                              .whole_rows = true,
                              .recompute = 2}};

static void sample(const corpus *c, const mixture_model *m) {
    char *path;
    family f = {.s = mixture_subject(c, m, "fp32", &path)};
    f.s.steps = FEW_STEPS;
    try_mixtures(&f, 2, 8, 24);
    for (int i = 0; i < NDP_COUNT(sliced); i++)
        check_way(&f, &sliced[i]);
    print_family(&f);
    assert_true(f.routed > 0 && (double)f.flips < 1e-3 * (double)f.routed);
    assert_true(f.apart > 0 && f.apart < 5e-6); /* so that no flip has a larger gap than 1e-5 */
    family_release(&f);
    free(path);
}

static void mixtral(void **state) { sample(*state, &mixture_models[0]); }
static void qwen3_moe(void **state) { sample(*state, &mixture_models[1]); }
static void deepseek_v2(void **state) { sample(*state, &mixture_models[2]); }

/* States of 8 bits, of experts large enough for them: ranks with others have other blocks, as those of tp have. */
static void coded_states(void **state) {
    static const mixture_model wide = {
        "wide-qwen3", "qwen3_moe", "\"num_experts\": 5, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 210"};
    static const way ways[] = {
        {.shard = 2, .ep = 2, .global = 6, .accumulation = 3, .threads = 1},
        {.cp = 2, .tp = 2, .ep = 4, .global = 6, .accumulation = 3, .threads = 1, .recompute = 1},
        {.pp = 2, .tp = 2, .ep = 2, .global = 6, .accumulation = 6, .threads = 1, .whole_rows = true}};
    char *path;
    family f = {.s = mixture_subject(*state, &wide, "fp32", &path)};
    f.s.steps = FEW_STEPS, f.s.optimizer = "adamw8bit";
    for (int i = 0; i < NDP_COUNT(ways); i++)
        check_way(&f, &ways[i]);
    print_family(&f);
    family_release(&f);
    free(path);
}

/* ---- a free run ---- */

static void free_runs_have_the_same_bits(void **state) {
    char *path;
    subject s = mixture_subject(*state, &mixture_models[0], "fp32", &path);
    s.steps = FEW_STEPS;
    way one = one_rank(6, 1, 1), w = {.pp = 2, .cp = 2, .tp = 2, .global = 6, .accumulation = 3, .threads = 1};
    outcome alone = train(&s, &one), given = train_given(&s, &w, &alone.of.routed), chosen = train(&s, &w);
    ndp_difference d = compare(&given, &alone, &(ndp_bounds){.spreads = 0});
    assert_true(d.choices > 0 && d.flips == 0);
    assert_true(same_bits(&given, &chosen));
    outcome_release(&alone);
    outcome_release(&given);
    outcome_release(&chosen);
    free(path);
}

/* ---- flips of a layout ---- */

/* The logits of expert 0 are 1e-3 larger, where they are seen; the choices are given, and nothing else changes. */
static ndp_status see_more(const ndp_op_call *c) {
    NDP_TRY(ndp_device_cpu.kernels[NDP_OP_route]->run(c));
    for (int64_t t = 0; t < c->out[2].rows; t++)
        ndp_view_set(&c->out[2], t, 0, ndp_view_get(&c->out[2], t, 0) + 1e-3);
    return NDP_OK;
}

static ndp_status put_see_more(void *user, ndp_trainer *t) {
    static const ndp_kernel more = {.run = see_more};
    const ndp_program *p = ndp_engine_program(t->engine);
    (void)user;
    for (int g = 0; t->rank.job.layout.size[NDP_TP] > 1 && g < t->model.n_graphs; g++)
        for (int phase = 0; phase < NDP_PHASES; phase++) {
            const ndp_list *list = &p->opts.units[g].lists[phase];
            for (int i = 0; i < list->n; i++)
                if (list->calls[i].op == &ndp_op_route)
                    list->calls[i].kernel = &more;
        }
    return NDP_OK;
}

static void flips_are_listed(void **state) {
    static const char *const layouts[] = {"cp=2", "tp=2"};
    char *path;
    subject s = mixture_subject(*state, &mixture_models[1], "fp32", &path);
    way one = one_rank(12, 12, 0);
    ndp_config *c = configure(&s, &one);
    ndp_verdict v[2];
    ndp_verify_opts o = NDP_VERIFY_OPTS_INIT;
    set(c, "train.transport=auto");
    o.layouts = layouts, o.n = 2, o.steps = 2;
    CHECK_OK(ndp_verify_altered(c, &o, put_see_more, NULL, v));
    assert_true(v[0].agrees && v[0].flips == 0 && v[0].choices == 2 * 7 * 12 * MIXTURE_LENGTH * 3);
    assert_false(v[1].agrees);
    assert_true(v[1].flips > 0 && v[1].n_listed > 0 && v[1].choices == v[0].choices);
    assert_int_equal(v[1].of[NDP_MEASURE_FIRST_GRADIENT].beyond, 0);
    for (int i = 0; i < v[1].n_listed; i++) {
        const ndp_flip *f = &v[1].listed[i];
        assert_true((f->chosen == 0) != (f->instead_of == 0) && f->gap < 1e-3 && f->gap > 0);
        assert_true(i == 0 || f->gap <= v[1].listed[i - 1].gap);
        assert_true(f->step >= 1 && f->step <= 2 && f->row < 12 * MIXTURE_LENGTH);
        assert_true(strncmp(f->unit, "layers.", 7) == 0 && strcmp(f->unit, "layers.1") != 0);
    }
    if (!strstr(v[1].words, "gap of a flipped choice, step ") || !strstr(v[1].words, "expert 0 instead of"))
        fail_msg("%s", v[1].words);
    ndp_config_destroy(c);
    free(path);
}

/* ---- by hand ---- */

enum { ROWS = 500, EXPERTS = 4, CHOICES_OF_ROW = 2 };

/* One step, one mixture; all rows choose experts 0 and 1. */
static ndp_outcome routed_by_hand(ndp_mixtures m) {
    static const char *unit = "layers.7";
    static const float p[EXPERTS] = {0.4f, 0.3f, 0.2f, 0.1f};
    ndp_outcome o = {.steps = 1, .mixtures = &unit};
    CHECK_OK(ndp_choices_init(&o.routed, 1, &m, ROWS, true));
    for (int i = 0; i < ROWS * CHOICES_OF_ROW; i++)
        o.routed.chosen[i] = i % 2;
    for (int i = 0; i < ROWS * EXPERTS; i++)
        o.routed.probabilities[i] = p[i % EXPERTS];
    return o;
}

static void route_row(ndp_outcome *o, int row, int first, int second, double p0, double p1, double p2, double p3) {
    const double p[EXPERTS] = {p0, p1, p2, p3};
    o->routed.chosen[row * 2] = first, o->routed.chosen[row * 2 + 1] = second;
    for (int e = 0; e < EXPERTS; e++)
        o->routed.probabilities[row * EXPERTS + e] = (float)p[e];
}

static void flips_by_hand(void **state) {
    (void)state;
    const ndp_bounds bounds = {.of = {[NDP_MEASURE_FLIP_GAP] = 1e-5, [NDP_MEASURE_FLIPS] = 1e-3}};
    char words[512];
    const ndp_mixtures m = {1, EXPERTS, CHOICES_OF_ROW, false, 0, 0};
    ndp_outcome one = routed_by_hand(m), other = routed_by_hand(m);
    ndp_difference d;
    CHECK_OK(ndp_outcome_compare(&other, &one, &bounds, &d));
    assert_true(d.choices == 1000 && d.flips == 0 && !ndp_difference_words(&d, words, sizeof words));
    route_row(&other, 3, 1, 0, 0.3, 0.4, 0.2, 0.1); /* another order: the same experts */
    route_row(&other, 9, 0, 2, 0.5, 0.199998, 0.2, 0.1);
    CHECK_OK(ndp_outcome_compare(&other, &one, &bounds, &d));
    assert_true(d.flips == 1 && d.n_listed == 1 && !ndp_difference_words(&d, words, sizeof words));
    assert_true(d.listed[0].row == 9 && d.listed[0].chosen == 2 && d.listed[0].instead_of == 1);
    assert_true(fabs(d.listed[0].gap - 2e-6) < 1e-7);
    route_row(&other, 4, 2, 3, 0.2, 0.1, 0.4, 0.3); /* both: the first with the last */
    CHECK_OK(ndp_outcome_compare(&other, &one, &bounds, &d));
    assert_true(d.flips == 3 && d.listed[0].chosen == 2 && d.listed[0].instead_of == 1);
    assert_true(d.listed[1].chosen == 3 && d.listed[1].instead_of == 0 && d.listed[2].row == 9);
    assert_string_equal(ndp_difference_words(&d, words, sizeof words),
                        "gap of a flipped choice, step 1, row 4, expert 2 instead of 1 (layers.7): off by 0.3, bound "
                        "1e-05; 2 choices are beyond it, the worst step 1, row 4, expert 2 instead of 1 by 0.3");
    route_row(&other, 4, 0, 2, 0.5, 0.199998, 0.2, 0.1);
    CHECK_OK(ndp_outcome_compare(&other, &one, &bounds, &d));
    assert_string_equal(ndp_difference_words(&d, words, sizeof words),
                        "share of flipped choices, all steps: off by 0.002, bound 0.001");
    ndp_bounds measured = bounds;
    ndp_flips_measure(&measured, 2, &other, &one); /* expert 0 of rows 4 and 9: 0.1 apart */
    assert_true(fabs(measured.of[NDP_MEASURE_FLIP_GAP] - 0.404) < 0.004);
    assert_true(fabs(measured.of[NDP_MEASURE_FLIPS] - 0.004) < 1e-9);
    ndp_choices_release(&one.routed);
    ndp_choices_release(&other.routed);
}

/* Two groups of two, of which one is open: where they lie within rounding, all experts of a row may be others; where
 * they do not, the layout is wrong, however near single keys are. */
static void flips_of_groups_by_hand(void **state) {
    (void)state;
    const ndp_bounds bounds = {.of = {[NDP_MEASURE_FLIP_GAP] = 1e-5, [NDP_MEASURE_FLIPS] = 1}};
    const ndp_mixtures m = {1, EXPERTS, CHOICES_OF_ROW, true, 2, 1};
    char words[512];
    ndp_outcome one = routed_by_hand(m), other = routed_by_hand(m);
    ndp_difference d;
    route_row(&one, 3, 0, 1, 0.5, 0.2, 0.4, 0.299998);
    route_row(&other, 3, 2, 3, 0.5, 0.2, 0.4, 0.300004);
    CHECK_OK(ndp_outcome_compare(&other, &one, &bounds, &d));
    assert_true(d.flips == 2 && fabs(d.listed[0].gap - 2e-6) < 1e-7 && !ndp_difference_words(&d, words, sizeof words));
    route_row(&one, 3, 0, 1, 0.4, 0.3, 0.4, 0.2);
    route_row(&other, 3, 2, 3, 0.4, 0.3, 0.4, 0.4);
    CHECK_OK(ndp_outcome_compare(&other, &one, &bounds, &d));
    assert_true(d.flips == 2 && fabs(d.listed[0].gap - 0.05) < 1e-6 && ndp_difference_words(&d, words, sizeof words));
    ndp_choices_release(&one.routed);
    ndp_choices_release(&other.routed);
}

/* With an argument: only the tests of that name (a pattern). */
int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(mixtral),
                                       cmocka_unit_test(qwen3_moe),
                                       cmocka_unit_test(deepseek_v2),
                                       cmocka_unit_test(coded_states),
                                       cmocka_unit_test(free_runs_have_the_same_bits),
                                       cmocka_unit_test(flips_are_listed),
                                       cmocka_unit_test(flips_by_hand),
                                       cmocka_unit_test(flips_of_groups_by_hand)};
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, make_corpus, drop_corpus);
}
