/* A sample of the mutations of long_mutations. */
#include "placement/mutants.h"

static void none_survives(void **state) {
    (void)state;
    mutants sample = {.seed = 2, .most = 1, .only = NDP_NONE};
    mutant_counts c = try_models(&sample, 8, 8);
    assert_int_equal(sample.alarms, 0);
    assert_int_equal(c.survived, 0);
    assert_true(c.refused > 300);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(none_survives)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
