/* The local transport: every collective on 1 to 16 threads, overlapping operations, and all the ways to fail. */
#include "base/clock.h"
#include "comm/cases.h"

#include "check.h"
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

static void operations_overlap(void **state) {
    (void)state;
    for (int n = 1; n <= 5; n += 2)
        CHECK_OK(ndp_local_world(n, check_outstanding, NULL));
    CHECK_OK(ndp_local_world(4, check_outstanding, NULL));
}

/* ---- failures: every body gets a communicator over all ranks and goes its own way ---- */

typedef struct failing {
    ndp_status (*body)(ndp_transport *t, ndp_comm *c);
} failing;

static ndp_status with_comm(ndp_transport *t, void *arg) {
    ndp_comm *c;
    NDP_TRY(ndp_comm_create(t, world_group(t), "shard", &c));
    ndp_status st = ((failing *)arg)->body(t, c);
    ndp_comm_destroy(c);
    return st;
}

static ndp_status run(int world, ndp_status (*body)(ndp_transport *t, ndp_comm *c)) {
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
    if (ndp_transport_rank(t) == 1)
        NDP_TRY(ndp_send_begin(c, x, 10, 0, 0, &w));
    else
        NDP_TRY(ndp_recv_begin(c, x, 9, 1, 0, &w));
    return ndp_wait(&w);
}

static ndp_status counts_differ(ndp_transport *t, ndp_comm *c) {
    return reduce(c, ndp_transport_rank(t) == 1 ? 1000 : 999);
}

static ndp_status kinds_differ(ndp_transport *t, ndp_comm *c) {
    double x[32] = {0};
    ndp_work w;
    if (ndp_transport_rank(t) != 1)
        return reduce(c, 16);
    NDP_TRY(ndp_all_gather_begin(c, x, x, 16, NDP_F64, &w));
    return ndp_wait(&w);
}

static ndp_status rank_one_sleeps(ndp_transport *t, ndp_comm *c) {
    if (ndp_transport_rank(t) == 1)
        usleep(600 * 1000);
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
    double start = ndp_now();
    CHECK_FAILS(run(4, rank_two_fails), NDP_EFORMAT, "rank 2: the file ends early");
    for (int k = 0; k < 5; k++)
        CHECK_FAILS(run(3, rank_one_gives_up), NDP_EIO, "rank 1: disk full");
    assert_true(ndp_now() - start < 10);
}

static void a_rank_that_leaves_is_named(void **state) {
    (void)state;
    CHECK_FAILS(run(3, rank_two_leaves), NDP_ECOMM,
                "rank 2 left the run while others wait in all_reduce (group shard)");
    CHECK_FAILS(run(2, nobody_sends), NDP_ECOMM, "rank 1 left the run while others wait in recv (group shard)");
}

static void ranks_that_disagree_are_named(void **state) {
    (void)state;
    CHECK_FAILS(run(3, counts_differ), NDP_EBUG, "rank 0 brings all_reduce of 999 fp64");
    CHECK_FAILS(run(3, counts_differ), NDP_EBUG, "rank 1 brings all_reduce of 1000 fp64");
    CHECK_FAILS(run(2, kinds_differ), NDP_EBUG, "rank 1 brings all_gather of 16 fp64");
    CHECK_FAILS(run(2, message_too_long), NDP_EBUG, "rank 0 expects 9 bytes with tag 0 from rank 1");
}

static void waiting_has_a_limit(void **state) {
    (void)state;
    setenv("NDP_COMM_TIMEOUT", "0.1", 1);
    CHECK_FAILS(run(2, rank_one_sleeps), NDP_ECOMM, "rank 1 did not come");
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
    WANT(ndp_send_begin(c, x, 1, 2, 0, &other) == NDP_EINVAL, "a message to nobody");
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operation_on_every_world),
        cmocka_unit_test(shared_windows),
        cmocka_unit_test(operations_overlap),
        cmocka_unit_test(many_communicators),
        cmocka_unit_test(uneven_windows),
        cmocka_unit_test(a_stop_is_no_failure),
        cmocka_unit_test(a_failure_reaches_everybody),
        cmocka_unit_test(a_rank_that_leaves_is_named),
        cmocka_unit_test(ranks_that_disagree_are_named),
        cmocka_unit_test(waiting_has_a_limit),
        cmocka_unit_test(misuse_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
