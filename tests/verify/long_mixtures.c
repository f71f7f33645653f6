/* Proof 3 for mixtures of experts, all of it: 120 layouts of worlds of 2 to 8 ranks and 30 of 16, with every ep, 20
 * steps, of three models, in fp32 and bf16. In fp32 under 0.1% of the choices may be flips, each with a gap of
 * probabilities below 1e-5; in bf16 they have the bounds of verify. */
#include "verify/mixtures.h"

static void check(const corpus *c, const mixture_model *m, const char *precision) {
    char *path;
    bool half = strcmp(precision, "bf16") == 0;
    family f = {.s = mixture_subject(c, m, precision, &path)};
    try_mixtures(&f, 2, 8, 120);
    try_mixtures(&f, 16, 16, 30);
    print_family(&f);
    assert_int_equal(f.passed, 150);
    assert_true(f.chosen[CHOICE_SLICED] >= 5 && f.chosen[CHOICE_ROUNDS] >= 5);
    assert_true(f.routed > 0 && (half || (double)f.flips < 1e-3 * (double)f.routed));
    assert_true(f.apart > 0 && (half || f.apart < 5e-6)); /* so that no flip has a larger gap than 1e-5 */
    family_release(&f);
    free(path);
}

static void mixtral(void **state) { check(*state, &mixture_models[0], "fp32"); }
static void qwen3_moe(void **state) { check(*state, &mixture_models[1], "fp32"); }
static void deepseek_v2(void **state) { check(*state, &mixture_models[2], "fp32"); }
static void mixtral_bf16(void **state) { check(*state, &mixture_models[0], "bf16"); }
static void qwen3_moe_bf16(void **state) { check(*state, &mixture_models[1], "bf16"); }
static void deepseek_v2_bf16(void **state) { check(*state, &mixture_models[2], "bf16"); }

/* With an argument: only the tests of that name (a pattern). */
int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(mixtral),        cmocka_unit_test(qwen3_moe),
                                       cmocka_unit_test(deepseek_v2),    cmocka_unit_test(mixtral_bf16),
                                       cmocka_unit_test(qwen3_moe_bf16), cmocka_unit_test(deepseek_v2_bf16)};
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, make_corpus, drop_corpus);
}
