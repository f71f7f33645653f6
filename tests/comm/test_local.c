/* The local transport: every collective on 1 to 16 threads, overlapping operations, and all the ways to fail. */
#include "base/clock.h"
#include "base/text.h"
#include "comm/messages.h"

#include "check.h"
#include <stdatomic.h>
#include <unistd.h>

static void every_operation_on_every_world(void **state) {
    static const int worlds[] = {1, 2, 3, 4, 8, 16};
    (void)state;
    for (int k = 0; k < NDP_COUNT(worlds); k++)
        CHECK_OK(ndp_local_world(worlds[k], check_transport, NULL));
}

static void shared_windows(void **state) {
    (void)state;
    for (int n = 1; n <= 8; n *= 2) {
        CHECK_OK(ndp_local_world(n, check_shared_window, NULL));
    }
}

static void many_communicators(void **state) {
    static const int worlds[] = {1, 2, 4, 6, 8};
    (void)state;
    for (int k = 0; k < NDP_COUNT(worlds); k++)
        CHECK_OK(ndp_local_world(worlds[k], check_many, NULL));
}

static void uneven_windows(void **state) {
    (void)state;
    for (int n = 1; n <= 4; n++)
        CHECK_OK(ndp_local_world(n, check_uneven_windows, NULL));
}

static void windows_are_read_in_place(void **state) {
    (void)state;
    CHECK_OK(ndp_local_world(4, check_in_place, NULL));
}

static void operations_overlap(void **state) {
    (void)state;
    for (int n = 1; n <= 5; n += 2)
        CHECK_OK(ndp_local_world(n, check_outstanding, NULL));
    CHECK_OK(ndp_local_world(4, check_outstanding, NULL));
}

static void messages(void **state) {
    (void)state;
    for (int n = 1; n <= 4; n++) {
        CHECK_OK(ndp_local_world(n, check_streams, NULL));
        CHECK_OK(ndp_local_world(n, check_pairs, NULL));
        CHECK_OK(ndp_local_world(n, check_message_limits, NULL));
    }
    CHECK_OK(ndp_local_world(2, check_large_messages, NULL));
}

/* ---- failures: every body gets a communicator over all ranks ---- */

typedef struct failing {
    ndp_status (*body)(ndp_transport *t, ndp_comm *c);
} failing;

static atomic_bool gave_up; /* a rank of the current run */

static ndp_status with_comm(ndp_transport *t, void *arg) {
    ndp_comm *c;
    NDP_TRY(ndp_comm_create(t, world_group(t), "shard", &c));
    ndp_status st = ((failing *)arg)->body(t, c);
    if (st != NDP_OK)
        atomic_store(&gave_up, true);
    ndp_comm_destroy(c);
    return st;
}

/* What a rank does that the others wait for in vain. */
static void work_until_another_gave_up(void) {
    for (double end = ndp_now() + HANGS; !atomic_load(&gave_up) && ndp_now() < end;)
        usleep(1000);
}

static ndp_status run(int world, ndp_status (*body)(ndp_transport *t, ndp_comm *c)) {
    atomic_store(&gave_up, false);
    return ndp_local_world(world, with_comm, &(failing){body});
}

static ndp_status reduce(ndp_comm *c, int64_t count) {
    double *x = calloc((size_t)count, sizeof *x);
    ndp_work w;
    ndp_status st = ndp_all_reduce_begin(c, x, count, NDP_F64, NDP_SUM, &w);
    if (st == NDP_OK)
        st = ndp_wait(&w);
    free(x);
    return st;
}

static ndp_status rank_two_fails(ndp_transport *t, ndp_comm *c) {
    if (ndp_transport_rank(t) == 2)
        return NDP_FAIL(NDP_EFORMAT, "the file ends early");
    for (;;)
        NDP_TRY(reduce(c, 3));
}

/* The others are in the middle of large operations on its memory when rank 1 gives up one it has begun. */
static ndp_status rank_one_gives_up(ndp_transport *t, ndp_comm *c) {
    int64_t count = 300000;
    if (ndp_transport_rank(t) != 1)
        for (;;)
            NDP_TRY(reduce(c, count));
    NDP_TRY(reduce(c, count));
    double *x = calloc((size_t)count, sizeof *x);
    ndp_work w;
    ndp_status st = ndp_all_reduce_begin(c, x, count, NDP_F64, NDP_SUM, &w);
    if (st == NDP_OK)
        st = NDP_FAIL(NDP_EIO, "disk full");
    ndp_transport_abort(t, ndp_error_message());
    free(x);
    return st;
}

/* The others receive its messages forever; rank 1 gives up those that it has begun. */
static ndp_status rank_one_gives_up_messages(ndp_transport *t, ndp_comm *c) {
    enum { BYTES = 3 << 20, N = 3 };
    char *x = calloc(N, BYTES);
    ndp_work w[2][N];
    ndp_status st = NDP_OK;
    int rank = ndp_transport_rank(t);
    for (int round = 0; round < 3 && st == NDP_OK && rank == 1; round++) {
        for (int k = 0; k < N && st == NDP_OK; k++) {
            st = ndp_send_begin(c, x + k * BYTES, BYTES, 0, k, &w[0][k]);
            st = st == NDP_OK ? ndp_send_begin(c, x + k * BYTES, BYTES, 2, k, &w[1][k]) : st;
        }
        for (int k = 0; k < 2 * N && st == NDP_OK && round < 2; k++)
            st = ndp_wait(&w[k % 2][k / 2]);
    }
    while (st == NDP_OK && rank != 1) {
        for (int k = 0; k < N && st == NDP_OK; k++)
            st = ndp_recv_begin(c, x + k * BYTES, BYTES, 1, k, &w[0][k]);
        for (int k = 0; k < N && st == NDP_OK; k++)
            st = ndp_wait(&w[0][k]);
    }
    if (rank == 1) {
        st = st == NDP_OK ? NDP_FAIL(NDP_EIO, "disk full") : st;
        ndp_transport_abort(t, ndp_error_message());
    }
    free(x);
    return st;
}

static ndp_status rank_two_leaves(ndp_transport *t, ndp_comm *c) {
    NDP_TRY(reduce(c, 3));
    return ndp_transport_rank(t) == 2 ? NDP_OK : reduce(c, 3);
}

static ndp_status nobody_sends(ndp_transport *t, ndp_comm *c) {
    char x[10];
    ndp_work w;
    if (ndp_transport_rank(t) == 1)
        return NDP_OK;
    NDP_TRY(ndp_recv_begin(c, x, sizeof x, 1, 0, &w));
    return ndp_wait(&w);
}

static ndp_status message_too_long(ndp_transport *t, ndp_comm *c) {
    char x[10] = {0};
    ndp_work w;
    int rank = ndp_transport_rank(t);
    ndp_comm_at(c, "acts", rank == 1 ? 8 : 9, -1);
    if (rank == 1)
        NDP_TRY(ndp_send_begin(c, x, 10, 0, 3, &w));
    else
        NDP_TRY(ndp_recv_begin(c, x, 9, 1, 3, &w));
    return ndp_wait(&w);
}

static ndp_status counts_differ(ndp_transport *t, ndp_comm *c) {
    return reduce(c, ndp_transport_rank(t) == 1 ? 1000 : 999);
}

static ndp_status kinds_differ(ndp_transport *t, ndp_comm *c) {
    double x[64] = {0};
    ndp_work w;
    if (ndp_transport_rank(t) != 1) {
        ndp_comm_at(c, "layers.3", 117, -1);
        return reduce(c, 16);
    }
    ndp_comm_at(c, "layers.3", 116, 7);
    NDP_TRY(ndp_all_gather_begin(c, x, x, 16, NDP_F64, &w));
    return ndp_wait(&w);
}

static ndp_status types_differ(ndp_transport *t, ndp_comm *c) {
    char x[800] = {0}, y[800];
    ndp_work w;
    ndp_comm_at(c, "block", 5, -1);
    if (ndp_transport_rank(t) == 0)
        return reduce(c, 100);
    NDP_TRY(ndp_shift_begin(c, x, y, sizeof x, &w));
    return ndp_wait(&w);
}

/* Two layers of the same size: without their names it would be wrong data and no error. */
static ndp_status orders_differ(ndp_transport *t, ndp_comm *c) {
    static const char *const layers[] = {"layers.0", "layers.1"};
    double x[2][16] = {{0}};
    ndp_work w[2];
    for (int k = 0; k < 2; k++) {
        int layer = ndp_transport_rank(t) == 3 ? 1 - k : k;
        ndp_comm_at(c, layers[layer], 11 + layer, -1);
        NDP_TRY(ndp_all_gather_begin(c, x[layer] + ndp_comm_rank(c) * 4, x[layer], 4, NDP_F64, &w[k]));
    }
    NDP_TRY(ndp_wait(&w[0]));
    return ndp_wait(&w[1]);
}

static ndp_status maxima_differ(ndp_transport *t, ndp_comm *c) {
    double x = 1;
    ndp_work w;
    NDP_TRY(ndp_all_reduce_begin(c, &x, 1, NDP_F64, ndp_transport_rank(t) == 2 ? NDP_MAX : NDP_SUM, &w));
    return ndp_wait(&w);
}

static ndp_status roots_differ(ndp_transport *t, ndp_comm *c) {
    double x = 1;
    ndp_work w;
    NDP_TRY(ndp_broadcast_begin(c, &x, 8, ndp_transport_rank(t) == 2, &w));
    return ndp_wait(&w);
}

/* ---- ranks that wait for each other ---- */

/* Rank r begins its operation with the next rank and waits for it, before the one with the rank before it. */
static ndp_status everybody_waits_for_the_next(ndp_transport *t, ndp_comm *c) {
    int n = ndp_transport_world(t), rank = ndp_transport_rank(t);
    ndp_comm *pairs[2] = {NULL};
    (void)c;
    for (int k = 0; k < 2; k++) { /* the pair (p, p + 1) for p = rank and rank - 1; (0, n - 1) closes the ring */
        int p = (rank - k + n) % n, first = p == n - 1 ? 0 : p, stride = p == n - 1 ? n - 1 : 1;
        NDP_TRY(ndp_comm_create(t, (ndp_group){first, stride, 2, rank != first}, k ? "before" : "next", &pairs[k]));
    }
    ndp_status st = NDP_OK;
    for (int k = 0; k < 2 && st == NDP_OK; k++) {
        ndp_comm_at(pairs[k], "ring", 40 + k, -1);
        st = reduce(pairs[k], 3);
    }
    ndp_comm_destroy(pairs[1]);
    ndp_comm_destroy(pairs[0]);
    return st;
}

/* Two groups of the same ranks, begun in another order by rank 0. */
static ndp_status groups_in_another_order(ndp_transport *t, ndp_comm *c) {
    ndp_comm *other;
    NDP_TRY(ndp_comm_create(t, world_group(t), "tp", &other));
    bool swapped = ndp_transport_rank(t) == 0;
    ndp_comm_at(other, "layers.3", 116, 7);
    ndp_status st = reduce(swapped ? other : c, 3);
    if (st == NDP_OK)
        st = reduce(swapped ? c : other, 3);
    ndp_comm_destroy(other);
    return st;
}

/* Rank 1 has failed on its way to an operation, and comes to say so where no other rank waits. */
static ndp_status says_so_elsewhere(ndp_transport *t, ndp_comm *c) {
    if (ndp_transport_rank(t) == 1)
        ndp_comm_report(c, "no memory for 7 bytes");
    return groups_in_another_order(t, c);
}

static ndp_status has_said_so(ndp_transport *t, ndp_comm *c) {
    if (ndp_transport_rank(t) == 1) {
        ndp_comm_report(c, "no memory for 7 bytes");
        ndp_comm_report(c, NULL);
    }
    return groups_in_another_order(t, c);
}

/* Rank 1 works for longer than the rings need to be found: that is not a ring. */
static ndp_status a_long_wait(ndp_transport *t, ndp_comm *c) {
    if (ndp_transport_rank(t) == 1)
        usleep(3000 * 1000);
    return reduce(c, 3);
}

static void rings_are_found(void **state) {
    (void)state;
    CHECK_FAILS(run(2, groups_in_another_order), NDP_ECOMM,
                "rank 0 waits at #116.7 all_reduce layers.3 (24 bytes of fp64) of group tp");
    CHECK_FAILS(run(2, groups_in_another_order), NDP_ECOMM,
                "rank 1 waits at all_reduce no. 1 (24 bytes of fp64) of group shard");
    CHECK_FAILS(run(4, groups_in_another_order), NDP_ECOMM, "ranks wait for each other");
    CHECK_FAILS(run(4, everybody_waits_for_the_next), NDP_ECOMM, "rank 3 waits at #40 all_reduce ring");
    CHECK_FAILS(run(3, everybody_waits_for_the_next), NDP_ECOMM, "ranks wait for each other");
    CHECK_FAILS(run(3, says_so_elsewhere), NDP_ECOMM, "rank 1: no memory for 7 bytes");
    CHECK_FAILS(run(3, has_said_so), NDP_ECOMM, "ranks wait for each other");
    CHECK_OK(run(4, a_long_wait));
}

static ndp_status rank_one_is_away(ndp_transport *t, ndp_comm *c) {
    if (ndp_transport_rank(t) == 1)
        work_until_another_gave_up();
    return reduce(c, 3);
}

static ndp_status rank_one_sleeps(ndp_transport *t, ndp_comm *c) {
    if (ndp_transport_rank(t) == 1)
        usleep(2000 * 1000);
    return reduce(c, 3);
}

/* Rank 0 still works when the others have ended. */
static ndp_status all_stop(ndp_transport *t, ndp_comm *c) {
    NDP_TRY(reduce(c, 3));
    if (ndp_transport_rank(t) == 0) {
        usleep(50 * 1000);
        ndp_comm *alone;
        NDP_TRY(ndp_comm_create(t, (ndp_group){0, 1, 1, 0}, "alone", &alone));
        ndp_status st = reduce(alone, 3);
        ndp_comm_destroy(alone);
        NDP_TRY(st);
    }
    return NDP_FAIL(NDP_EINTR, "stopped after step 5");
}

static void a_stop_is_no_failure(void **state) {
    (void)state;
    assert_int_equal(run(3, all_stop), NDP_EINTR);
    assert_string_equal(ndp_error_message(), "stopped after step 5");
}

static void a_failure_reaches_everybody(void **state) {
    (void)state;
    CHECK_FAILS(run(4, rank_two_fails), NDP_EFORMAT, "rank 2: the file ends early");
    for (int k = 0; k < 5; k++)
        CHECK_FAILS(run(3, rank_one_gives_up), NDP_EIO, "rank 1: disk full");
    for (int k = 0; k < 5; k++)
        CHECK_FAILS(run(3, rank_one_gives_up_messages), NDP_EIO, "rank 1: disk full");
}

static void a_rank_that_leaves_is_named(void **state) {
    (void)state;
    CHECK_FAILS(run(3, rank_two_leaves), NDP_ECOMM,
                "rank 2 left the run while others wait in all_reduce (group shard)");
    CHECK_FAILS(run(2, nobody_sends), NDP_ECOMM, "rank 1 left the run while others wait in recv (group shard)");
}

static void ranks_that_disagree_are_named(void **state) {
    (void)state;
    CHECK_FAILS(run(3, counts_differ), NDP_ECOMM,
                "shard: rank 1 is at all_reduce no. 1 (8000 bytes of fp64), rank 0 at all_reduce no. 1 (7992 bytes of "
                "fp64)");
    CHECK_FAILS(
        run(4, kinds_differ), NDP_ECOMM,
        "shard: rank 1 is at #116.7 all_gather layers.3 (128 bytes of fp64), rank 0 at #117 all_reduce layers.3 "
        "(128 bytes of fp64)");
    CHECK_FAILS(run(2, types_differ), NDP_ECOMM,
                "rank 1 is at #5 shift block (800 bytes), rank 0 at #5 all_reduce block (800 bytes of fp64)");
    CHECK_FAILS(
        run(4, orders_differ), NDP_ECOMM,
        "shard: rank 3 is at #12 all_gather layers.1 (32 bytes of fp64), rank 0 at #11 all_gather layers.0 (32 bytes "
        "of fp64)");
    CHECK_FAILS(run(4, maxima_differ), NDP_ECOMM, "all_reduce no. 1 (8 bytes of fp64, maximum)");
    CHECK_FAILS(run(4, roots_differ), NDP_ECOMM,
                "rank 2 is at broadcast no. 1 from rank 1 (8 bytes), rank 0 at broadcast no. 1 from rank 0 (8 bytes)");
    CHECK_FAILS(run(2, message_too_long), NDP_ECOMM,
                "shard: rank 0 is at #9 recv acts from rank 1 (9 bytes, tag 3), rank 1 at #8 send acts to rank 0 (10 "
                "bytes, tag 3)");
}

static ndp_status rank_one_computes(ndp_transport *t, ndp_comm *c) {
    ndp_comm_at(c, "layers.2", 115, -1);
    NDP_TRY(reduce(c, 3));
    if (ndp_transport_rank(t) == 1)
        work_until_another_gave_up();
    ndp_comm_at(c, "layers.3", 117, -1);
    return reduce(c, 3);
}

/* Rank 1 does not come to the world since it waits for rank 2. */
static ndp_status rank_two_holds_up_one(ndp_transport *t, ndp_comm *c) {
    int rank = ndp_transport_rank(t);
    ndp_comm *pair = NULL;
    ndp_status st = NDP_OK;
    if (rank == 1 || rank == 2)
        NDP_TRY(ndp_comm_create(t, (ndp_group){1, 1, 2, rank - 1}, "pair", &pair));
    NDP_TRY(reduce(c, 3));
    if (rank == 1)
        usleep(200 * 1000); /* begins to wait later than the others */
    if (rank == 2)
        work_until_another_gave_up();
    if (pair)
        st = reduce(pair, 3);
    ndp_comm_destroy(pair);
    NDP_TRY(st);
    return reduce(c, 3);
}

/* 300 operations and a failure: the last 256 are written, by each rank. */
static ndp_status many_operations(ndp_transport *t, ndp_comm *c) {
    for (int k = 0; k < 300; k++) {
        ndp_comm_at(c, "grads", k, -1);
        NDP_TRY(reduce(c, 3));
    }
    return ndp_transport_rank(t) == 1 ? NDP_FAIL(NDP_EIO, "disk full") : reduce(c, 3);
}

static void journals_are_written(void **state) {
    char folder[] = "/tmp/ndp-journal-XXXXXX", path[64], *text;
    size_t bytes;
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/j", folder);
    setenv("NDP_JOURNAL", path, 1);
    CHECK_FAILS(run(2, many_operations), NDP_EIO, "disk full");
    unsetenv("NDP_JOURNAL");
    for (int r = 0; r < 2; r++) {
        snprintf(path, sizeof path, "%s/j.rank%d", folder, r);
        CHECK_OK(ndp_file_read(path, &text, &bytes));
        assert_non_null(strstr(text, "disk full"));
        assert_non_null(strstr(text, "shard #299 all_reduce grads (24 bytes of fp64), begun"));
        assert_non_null(strstr(text, "in place"));
        assert_null(strstr(text, "shard #43 all_reduce"));
        assert_true((strstr(text, "not ended") != NULL) == (r == 0));
        free(text);
    }
    CHECK_OK(ndp_folder_remove(folder));
}

static void waiting_has_a_limit(void **state) {
    (void)state;
    setenv("NDP_COMM_TIMEOUT", "0.5", 1);
    CHECK_FAILS(run(2, rank_one_is_away), NDP_ECOMM, "rank 1 has not arrived");
    setenv("NDP_COMM_TIMEOUT", "1.5", 1); /* in which a rank arrives even on a busy machine */
    CHECK_FAILS(
        run(4, rank_one_computes), NDP_ECOMM,
        "rank 1 has not arrived: it computes after #115 all_reduce layers.2 (24 bytes of fp64) of group shard, ended");
    CHECK_FAILS(run(4, rank_one_computes), NDP_ECOMM, "ranks 0, 2-3 wait");
    CHECK_FAILS(run(4, rank_two_holds_up_one), NDP_ECOMM,
                "rank 1 has not arrived: it waits at all_reduce no. 1 (24 bytes of fp64) of group pair");
    CHECK_FAILS(run(4, rank_two_holds_up_one), NDP_ECOMM,
                "blocked on rank 2, which computes after all_reduce no. 1 (24 bytes of fp64) of group shard");
    setenv("NDP_COMM_TIMEOUT", "soon", 1);
    CHECK_FAILS(run(2, rank_one_sleeps), NDP_EINVAL, "NDP_COMM_TIMEOUT is \"soon\"");
    unsetenv("NDP_COMM_TIMEOUT");
    CHECK_OK(run(2, rank_one_sleeps));
}

/* ---- misuse ---- */

static ndp_status misuse(ndp_transport *t, ndp_comm *c) {
    double x[4] = {0};
    ndp_work w[9], other;
    ndp_comm *none;
    int rank = ndp_transport_rank(t);
    WANT(ndp_comm_create(t, (ndp_group){0, 1, 3, rank}, "big", &none) == NDP_EINVAL, "a group beyond the world");
    WANT(ndp_comm_create(t, (ndp_group){0, 1, 2, 1 - rank}, "swapped", &none) == NDP_EINVAL, "another's place");
    WANT(ndp_all_reduce_begin(c, x, 4, NDP_U8, NDP_SUM, &other) == NDP_EINVAL, "a sum of bytes");
    WANT(ndp_all_reduce_begin(c, x, -1, NDP_F64, NDP_SUM, &other) == NDP_EINVAL, "a negative count");
    WANT(ndp_send_begin(c, x, 1, rank, 0, &other) == NDP_EINVAL, "a message to oneself");
    WANT(ndp_send_begin(c, x, 1, 2, 0, &other) == NDP_EINVAL, "a message to no rank");
    for (int k = 0; k < 8; k++)
        NDP_TRY(ndp_all_reduce_begin(c, x, 4, NDP_F64, NDP_SUM, &w[k]));
    WANT(ndp_all_reduce_begin(c, x, 4, NDP_F64, NDP_SUM, &w[8]) == NDP_EBUG, "nine outstanding");
    for (int k = 0; k < 8; k++)
        NDP_TRY(ndp_wait(&w[k]));
    WANT(ndp_wait(&w[7]) == NDP_EBUG, "waited for twice");
    NDP_TRY(ndp_all_reduce_begin(c, x, 4, NDP_F64, NDP_SUM, &w[0]));
    NDP_TRY(ndp_all_reduce_begin(c, x, 4, NDP_F64, NDP_SUM, &w[1]));
    return ndp_wait(&w[1]);
}

static void misuse_is_refused(void **state) {
    (void)state;
    CHECK_FAILS(run(2, misuse), NDP_EBUG, "operation #10 of group shard is waited for before #9");
    CHECK_FAILS(ndp_local_world(0, with_comm, NULL), NDP_EINVAL, "a world of 0 ranks");
}

/* The same on one thread, in an order that a seed shuffles. */
static void ranks_take_turns(void **state) {
    setenv("NDP_LOCAL_ORDER", "3,4,5", 1);
    for (int n = 3; n <= 6; n++) { /* all seeds */
        CHECK_OK(ndp_local_world(n, check_transport, NULL));
        CHECK_OK(ndp_local_world(n, check_outstanding, NULL));
        CHECK_OK(ndp_local_world(n, check_streams, NULL));
    }
    CHECK_OK(ndp_local_world(4, check_shared_window, NULL));
    CHECK_OK(ndp_local_world(6, check_many, NULL));
    CHECK_OK(ndp_local_world(4, check_in_place, NULL));
    misuse_is_refused(state);
    setenv("NDP_LOCAL_ORDER", "", 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_take_turns),
        cmocka_unit_test(every_operation_on_every_world),
        cmocka_unit_test(shared_windows),
        cmocka_unit_test(operations_overlap),
        cmocka_unit_test(many_communicators),
        cmocka_unit_test(uneven_windows),
        cmocka_unit_test(windows_are_read_in_place),
        cmocka_unit_test(messages),
        cmocka_unit_test(a_stop_is_no_failure),
        cmocka_unit_test(a_failure_reaches_everybody),
        cmocka_unit_test(a_rank_that_leaves_is_named),
        cmocka_unit_test(ranks_that_disagree_are_named),
        cmocka_unit_test(rings_are_found),
        cmocka_unit_test(waiting_has_a_limit),
        cmocka_unit_test(journals_are_written),
        cmocka_unit_test(misuse_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
