/* Mutations of emitted lists over 40 layouts of each model: every one that the other checks accept is refused
 * by the placement check, or changes nothing when it is run (mutants.h). A sample: test_mutations.
 *
 * Usage: long_mutations [model [layout [mutation]]], as a line of a survivor says; nothing: all. */
#include "placement/mutants.h"

enum { LAYOUTS = 40, RANKS = 16 };

static mutants all = {.seed = 1, .most = 12, .only = NDP_NONE};

static void none_survives(void **state) {
    (void)state;
    mutant_counts c = try_models(&all, LAYOUTS, RANKS);
    assert_int_equal(all.alarms, 0);
    assert_int_equal(c.survived, 0);
    assert_true(c.counted >= 5000);
    assert_true(all.checking < 600);
}

static void try_some(int model, int layout) {
    ndp_layout l[LAYOUTS];
    int n = world_layouts(&world_models[model], RANKS, all.seed + (uint64_t)model, LAYOUTS, l);
    all.verbose = true;
    for (int i = 0; i < n; i++)
        if (layout < 0 || i == layout)
            try_world(&all, model, &l[i], (uint64_t)i);
    print_mutants(&all);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(none_survives)};
    if (getenv("NDP_MUTATIONS"))
        all.most = atoi(getenv("NDP_MUTATIONS"));
    all.only = argc > 3 ? atoi(argv[3]) : NDP_NONE;
    if (argc > 1)
        return try_some(atoi(argv[1]), argc > 2 ? atoi(argv[2]) : -1), 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
