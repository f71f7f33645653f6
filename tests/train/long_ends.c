/* Every way to end a run that ends.h, end_signals.h and end_stops.h have. On the command line: at most so many places
 * of a way on a rank; a pattern of tests; how often a run is ended in each way in a phase; what the names of the phases
 * have; 1: without SIGSTOP, 2: nor SIGKILL. */
#include "train/end_stops.h"

static int most = 12, tries = 7;
static const char *only = "";
static stop_kind first_kind = STOPPED;

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

static void signals_of(const char *folder, int first, int end) {
    ends_test t;
    if (!getenv("NDP_PROGRAM"))
        skip();
    ends_begin(&t, folder);
    program_references(&t);
    all_signals(&t, first, end);
    ends_end(&t);
}

static void each_signal(void **state) { signals_of(*state, 0, FIRST_MPI_WORLD); }

static void each_signal_mpi(void **state) {
    if (!has_mpirun())
        skip();
    signals_of(*state, FIRST_MPI_WORLD, NDP_COUNT(signal_worlds));
}

/* 336 ends in all: 8 phases, 2 transports, 3 kinds. */
static void stops_of(const char *folder, const char *transport) {
    ends_test t = {.folder = folder, .seed = tiny_seed()};
    if (!getenv("NDP_PROGRAM"))
        skip();
    stop_references(&t);
    all_stops(&t, transport, tries, only, first_kind);
    printf("%d runs over %s were ended, %d resumed; 0 failed\n", t.runs, transport, t.resumed);
}

static void each_stop_shm(void **state) { stops_of(*state, "shm"); }

static void each_stop_mpi(void **state) {
    if (!has_mpirun())
        skip();
    stops_of(*state, "mpi");
}

/* 100 restarts. */
static void each_restart(void **state) {
    ends_test t = {.folder = *state, .seed = tiny_seed()};
    if (!getenv("NDP_PROGRAM"))
        skip();
    stop_references(&t);
    restarted_runs(&t, "shm", 50);
    if (has_mpirun())
        restarted_runs(&t, "mpi", 50);
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
                                       cmocka_unit_test_setup_teardown(each_signal_mpi, tiny_make, tiny_drop),
                                       cmocka_unit_test_setup_teardown(each_restart, tiny_make, tiny_drop),
                                       cmocka_unit_test_setup_teardown(each_stop_shm, tiny_make, tiny_drop),
                                       cmocka_unit_test_setup_teardown(each_stop_mpi, tiny_make, tiny_drop),
                                       cmocka_unit_test_setup_teardown(each_way_everywhere, tiny_make, tiny_drop)};
    if (argc > 1)
        most = atoi(argv[1]);
    if (argc > 2)
        cmocka_set_test_filter(argv[2]);
    if (argc > 3)
        tries = atoi(argv[3]);
    if (argc > 4)
        only = argv[4];
    if (argc > 5)
        first_kind = (stop_kind)atoi(argv[5]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
