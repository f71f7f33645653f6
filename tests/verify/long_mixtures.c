/* Proof 3 for mixtures of experts, all of it: 120 layouts of worlds of 2 to 8 ranks and 30 of 16, with every ep, 20
 * steps, of two models. Under 0.1% of the choices may be flips, each with a gap of probabilities below 1e-5. */
#include "verify/mixtures.h"

static void check(const corpus *c, const mixture_model *m) {
    char *path;
    family f = {.s = mixture_subject(c, m, "fp32", &path)};
    try_mixtures(&f, 2, 8, 120);
    try_mixtures(&f, 16, 16, 30);
    print_family(&f);
    assert_int_equal(f.passed, 150);
    assert_true(f.chosen[CHOICE_SLICED] >= 5 && f.chosen[CHOICE_ROUNDS] >= 5);
    assert_true(f.routed > 0 && (double)f.flips < 1e-3 * (double)f.routed);
    assert_true(f.apart > 0 && f.apart < 5e-6); /* so that no flip has a larger gap than 1e-5 */
    family_release(&f);
    free(path);
}

static void mixtral(void **state) { check(*state, &mixture_models[0]); }
static void qwen3_moe(void **state) { check(*state, &mixture_models[1]); }
static void deepseek_v2(void **state) { check(*state, &mixture_models[2]); }

/* With an argument: only the tests of that name (a pattern). */
int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(mixtral), cmocka_unit_test(qwen3_moe),
                                       cmocka_unit_test(deepseek_v2)};
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, make_corpus, drop_corpus);
}
