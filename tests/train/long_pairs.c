/* 200 pairs of runs in one folder; with an argument, so many. */
#include "train/pairs.h"

static int count = 200;

static void pairs(void **state) { run_pairs(*state, count, system("command -v mpirun >/dev/null 2>&1") == 0); }

int main(int argc, char **argv) {
    const struct CMUnitTest test = cmocka_unit_test_setup_teardown(pairs, tiny_make, tiny_drop);
    if (argc > 1)
        count = atoi(argv[1]);
    return pairs_main(&test);
}
