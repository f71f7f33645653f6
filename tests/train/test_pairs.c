/* A few pairs of runs in one folder; long_pairs has 200. */
#include "train/pairs.h"

static void pairs(void **state) { run_pairs(*state, 6, false); }

int main(void) {
    const struct CMUnitTest test = cmocka_unit_test_setup_teardown(pairs, tiny_make, tiny_drop);
    return pairs_main(&test);
}
