/* 500 kills of runs that save in the background, beside others that do not, and 40 of processes; with two arguments, so
 * many of both. */
#include "train/kills.h"

static int in_background = 500, of_processes = 40;

static void killed_and_resumed(void **state) { kill_runs(*state, in_background, has_mpirun() ? of_processes : 0); }

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(killed_and_resumed, tiny_make, tiny_drop)};
    if (argc > 2) {
        in_background = atoi(argv[1]);
        of_processes = atoi(argv[2]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
