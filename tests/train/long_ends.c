/* Every way to end a run that ends.h and end_signals.h have; every place of a way on every rank, up to so many (a
 * number on the command line). */
#include "train/end_stops.h"

static int most = 12;

/* All places, or as many of them, evenly spread. */
static void each_place(ends_test *t, int layout, ends_way way, int rank) {
    int64_t places = ends_places(t, layout, way, rank), n = places < most ? places : most;
    for (int64_t i = 0; i < n; i++)
        ends_try(t, layout, way, rank, 1 + i * places / n);
}

static void each_way_everywhere(void **state) {
    ends_test t;
    ends_begin(&t, *state);
    for (int layout = 0; layout < NDP_COUNT(ends_layouts); layout++)
        for (ends_way way = ENDS_TRACE; way < ENDS_WAYS; way++)
            for (int rank = 0; rank < ends_ranks(&ends_layouts[layout]); rank++)
                each_place(&t, layout, way, rank);
    ends_end(&t);
}

static void each_signal(void **state) {
    ends_test t;
    if (!getenv("NDP_PROGRAM"))
        skip();
    ends_begin(&t, *state);
    all_signals(&t);
    ends_end(&t);
}

static void each_stop(void **state) {
    ends_test t = {.folder = *state, .seed = tiny_seed()};
    if (!getenv("NDP_PROGRAM"))
        skip();
    shard_2_reference(&t);
    all_stops(&t, STOP_PLACES);
    printf("%d ranks were stopped or killed, all named\n", t.failed);
}

static void each_full_disk(void **state) {
    ends_test t;
    if (!getenv("NDP_PROGRAM"))
        skip();
    ends_begin(&t, *state);
    program_references(&t);
    full_disks(&t);
    ends_end(&t);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(each_full_disk, tiny_make, tiny_drop),
                                       cmocka_unit_test_setup_teardown(each_signal, tiny_make, tiny_drop),
                                       cmocka_unit_test_setup_teardown(each_stop, tiny_make, tiny_drop),
                                       cmocka_unit_test_setup_teardown(each_way_everywhere, tiny_make, tiny_drop)};
    if (argc > 1)
        most = atoi(argv[1]);
    if (argc > 2)
        cmocka_set_test_filter(argv[2]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
