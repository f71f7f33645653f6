/* No program of the passes is refused: every layout on which other tests train, and random legal layouts of worlds to
 * 65,536 ranks, of which roles are checked. */
#include "placement/alarms.h"
#include "placement/random_worlds.h"

enum { RANDOM_WORLDS = 2000 };

static void none_is_refused(void **state) {
    static const int worlds[] = {2, 3, 4, 6, 8, 9, 12, 16};
    alarms a = {.step = 1};
    check_layout_sizes(&a);
    check_packed(&a);
    check_pipelines(&a, *state);
    check_all_families(&a, worlds, NDP_COUNT(worlds));
    check_undivided_heads(&a);
    check_convolutions(&a);
    print_alarms(&a);
    assert_int_equal(a.refused, 0);
}

static void random_worlds(void **state) {
    (void)state;
    alarms a = {.step = 1};
    int largest = 0;
    for (int i = 0, n = 0; n < RANDOM_WORLDS; i++) {
        int ranks = check_random(&a, (uint64_t)i);
        n += ranks > 0;
        largest = ranks > largest ? ranks : largest;
    }
    print_alarms(&a);
    printf("  the largest has %d ranks\n", largest);
    assert_int_equal(a.refused, 0);
    assert_int_equal(largest, MOST_RANKS);
}

/* Usage: long_no_alarm [number]: that random world alone. */
int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(none_is_refused), cmocka_unit_test(random_worlds)};
    alarms one = {.step = 1};
    if (argc > 1)
        return check_random(&one, (uint64_t)atoi(argv[1])), one.refused;
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
