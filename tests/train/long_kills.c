/* 500 kills, 40 of them of processes; with two arguments, so many of threads and of processes. */
#include "train/kills.h"

static int of_threads = 460, of_processes = 40;

static void killed_and_resumed(void **state) { kill_runs(*state, of_threads, has_mpirun() ? of_processes : 0); }

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(killed_and_resumed, tiny_make, tiny_drop)};
    if (argc > 2) {
        of_threads = atoi(argv[1]);
        of_processes = atoi(argv[2]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
