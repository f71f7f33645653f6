/* 20 kills of runs that save in the background; long_kills has 500. */
#include "train/kills.h"

static void killed_and_resumed(void **state) { kill_runs(*state, 20, 0); }

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(killed_and_resumed, tiny_make, tiny_drop)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
