/* Proof 3 for the family whose tied buffer has a segment that only one of the two stages writes, and for one whose
 * forward reads a buffer that its backward does not (all families: long_family_pipelines). */
#include "verify/family_pipelines.h"

static void adamw(void **state) { check_family_pipelines(family_called(*state), 5, "adamw"); }
static void sgd(void **state) { check_family_pipelines(family_called(*state), 5, "sgd"); }

/* With an argument: only the tests of that name (a pattern). */
int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test_prestate(adamw, "gpt2"),
                                       cmocka_unit_test_prestate(sgd, "gpt2"),
                                       {"glm4_moe", adamw, NULL, NULL, "glm4_moe"}};
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, make_the_corpus, drop_the_corpus);
}
