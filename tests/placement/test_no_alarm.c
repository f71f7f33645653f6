/* A sample of the worlds of long_no_alarm: none is refused. */
#include "placement/alarms.h"

static void none_is_refused(void **state) {
    static const int worlds[] = {2, 4, 6, 8};
    alarms a = {.step = 11};
    check_layout_sizes(&a);
    check_packed(&a);
    check_pipelines(&a, *state);
    a.step = 23;
    check_all_families(&a, worlds, NDP_COUNT(worlds));
    check_undivided_heads(&a);
    check_convolutions(&a);
    print_alarms(&a);
    assert_int_equal(a.refused, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(none_is_refused)};
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
