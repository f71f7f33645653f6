/* A place of each way to end a run, on each layout, and of each way to stop a rank; long_ends has all of them, and
 * signals. */
#include "train/end_stops.h"

static void each_way_once(void **state) {
    ends_test t;
    ends_begin(&t, *state);
    for (int layout = 0; layout < NDP_COUNT(ends_layouts); layout++)
        for (ends_way way = ENDS_TRACE; way < ENDS_WAYS; way++) {
            int rank = (int)ends_draw(&t, way < ENDS_WRITE ? 1 : ends_ranks(&ends_layouts[layout]));
            int64_t places = ends_places(&t, layout, way, rank);
            if (places > 0)
                ends_try(&t, layout, way, rank, 1 + ends_draw(&t, places));
        }
    ends_end(&t);
}

/* In phases and on a transport that are drawn; long_ends has all of them. */
static void a_stop_of_each_kind(void **state) {
    ends_test t = {.folder = *state, .seed = tiny_seed()};
    if (!getenv("NDP_PROGRAM"))
        skip();
    stop_references(&t);
    some_stops(&t, has_mpirun() && ends_draw(&t, 2) ? "mpi" : "shm");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(each_way_once, tiny_make, tiny_drop),
                                       cmocka_unit_test_setup_teardown(a_stop_of_each_kind, tiny_make, tiny_drop)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
