/* 1,500 damages by a seed ($NDP_TEST_SEED): found, named, and gone round. */
#include "checkpoint/damage_runs.h"

static void damages_by_a_seed(void **state) { run_trials(*state, 1500); }

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(damages_by_a_seed, make_folder, drop_folder)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
