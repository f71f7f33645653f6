/* When a cycle of waiting ranks is certain, and what a journal says about a missing rank. Journals are made up here;
 * tests/comm/test_processes.c has real ones. */
#include "comm/watch/watchdog.h"

#include "check.h"
#include <stdlib.h>

enum { WORLD = 4 };

typedef struct world {
    ndp_journal journals[WORLD];
    ndp_transport t;
} world;

static int make(void **state) {
    world *w = aligned_alloc(64, (sizeof *w + 63) / 64 * 64);
    assert_non_null(w);
    memset(w, 0, sizeof *w);
    w->t = (ndp_transport){.rank = 0, .world = WORLD, .journals = w->journals};
    *state = w;
    return 0;
}

static int drop(void **state) {
    free(*state);
    return 0;
}

/* Rank `rank` is inside its wait number `wait`, blocked on another that cannot help while inside its own `peer_wait`.
 */
static void block(world *w, int rank, uint32_t wait, int blocked_on, uint32_t peer_wait) {
    ndp_rank_state s = {.known = true,
                        .wait = wait,
                        .blocked_on = blocked_on,
                        .peer_wait = peer_wait,
                        .at = {.instr = -1},
                        .record = {.kind = NDP_WORK_ALL_REDUCE, .count = 5, .at = {.instr = 40 + rank, .call = -1}}};
    snprintf(s.record.group, sizeof s.record.group, "tp");
    ndp_journal_put(&w->journals[rank], &s);
}

static ndp_status check(world *w) { return ndp_watchdog_find_cycle(&(ndp_watchdog){0}, &w->t, 1); }

static void a_cycle_names_all_its_ranks(void **state) {
    world *w = *state;
    block(w, 0, 7, 2, 31);
    block(w, 2, 31, 3, 5);
    block(w, 3, 5, 0, 7);
    CHECK_FAILS(check(w), NDP_ECOMM, "rank 0 waits at #40 all_reduce");
    assert_non_null(strstr(ndp_error_message(), "rank 2 waits at #42 all_reduce"));
    assert_non_null(strstr(ndp_error_message(), "rank 3 waits at #43 all_reduce"));
    assert_non_null(strstr(ndp_error_message(), ", for rank 3"));
}

/* The edge to rank 2 holds for a wait that has ended since. */
static void a_stale_edge_makes_no_cycle(void **state) {
    world *w = *state;
    block(w, 0, 7, 2, 29);
    block(w, 2, 31, 0, 7);
    CHECK_OK(check(w));
    block(w, 0, 7, 2, 31);
    block(w, 2, 31, 0, 5); /* names an earlier wait of this rank */
    CHECK_OK(check(w));
    block(w, 2, 31, 0, 7);
    CHECK_FAILS(check(w), NDP_ECOMM, "ranks wait for each other");
}

static void a_guess_makes_no_cycle(void **state) {
    world *w = *state;
    block(w, 0, 7, 2, 31);
    block(w, 2, 31, 0, 0);
    CHECK_OK(check(w));
}

static void a_rank_outside_a_wait_makes_no_cycle(void **state) {
    world *w = *state;
    block(w, 0, 7, 2, 31);
    block(w, 2, 32, 0, 7);
    CHECK_OK(check(w));
}

/* Rank 0 waits for a cycle that it is not part of: the ranks of the cycle report it. */
static void a_cycle_of_others_is_theirs(void **state) {
    world *w = *state;
    block(w, 0, 7, 1, 3);
    block(w, 1, 3, 2, 31);
    block(w, 2, 31, 1, 3);
    CHECK_OK(check(w));
}

/* It is certain that a gate's rank cannot advance it once it has polled twice inside one wait. */
static void a_gate_is_certain_after_two_polls(void **state) {
    world *w = *state;
    ndp_watchdog v = {0};
    block(w, 1, 3, -1, 0);
    assert_int_equal(ndp_watchdog_peer_wait(&v, &w->t, 1), 0);
    ndp_journal_poll(&w->journals[1], 1);
    assert_int_equal(ndp_watchdog_peer_wait(&v, &w->t, 1), 0);
    ndp_journal_poll(&w->journals[1], 2);
    assert_int_equal(ndp_watchdog_peer_wait(&v, &w->t, 1), 3);
    block(w, 1, 5, -1, 0);
    assert_int_equal(ndp_watchdog_peer_wait(&v, &w->t, 1), 0);
    block(w, 1, 6, -1, 0);
    assert_int_equal(ndp_watchdog_peer_wait(&v, &w->t, 1), 0);
}

/* ---- what a journal says ---- */

static void begin(world *w, ndp_comm *c, int kind, uint32_t sequence, int peer) {
    ndp_work work = {.comm = c, .kind = kind, .count = 1, .peer = peer};
    c->operations = sequence;
    ndp_journal_begin(&w->journals[0], &work);
    if (kind == NDP_WORK_SEND)
        ndp_journal_set_sequence(&w->journals[0], &work, sequence);
}

static ndp_progress progress(world *w, uint32_t comm, uint32_t sequence, int to) {
    ndp_expected_op e = {.base = 0, .comm = comm, .sequence = sequence, .to = to};
    return ndp_journal_progress(&w->journals[0], &e).progress;
}

static void a_journal_says_what_was_begun(void **state) {
    world *w = *state;
    ndp_comm tp = {.transport = &w->t, .group = {0, 1, 3, 0}, .name = "tp", .number = 1}, other = tp;
    other.number = 2;
    assert_int_equal(progress(w, 1, 1, -1), NDP_PROGRESS_NOT_BEGUN);
    begin(w, &tp, NDP_WORK_ALL_REDUCE, 4, 0);
    begin(w, &tp, NDP_WORK_SEND, 9, 2);
    begin(w, &other, NDP_WORK_ALL_REDUCE, 8, 0);
    assert_int_equal(progress(w, 1, 4, -1), NDP_PROGRESS_BEGUN);
    assert_int_equal(progress(w, 1, 5, -1), NDP_PROGRESS_NOT_BEGUN);
    assert_int_equal(progress(w, 1, 9, 2), NDP_PROGRESS_BEGUN);
    assert_int_equal(progress(w, 1, 10, 2), NDP_PROGRESS_NOT_BEGUN);
    assert_int_equal(progress(w, 1, 9, 1), NDP_PROGRESS_NOT_BEGUN);
    assert_int_equal(progress(w, 1, 0, -1), NDP_PROGRESS_UNKNOWN); /* it is not known what is waited for */
}

/* Nothing is concluded from records that are overwritten. */
static void a_full_journal_does_not_guess(void **state) {
    world *w = *state;
    ndp_comm tp = {.transport = &w->t, .group = {0, 1, 3, 0}, .name = "tp", .number = 1}, other = tp;
    other.number = 2;
    begin(w, &tp, NDP_WORK_ALL_REDUCE, 4, 0);
    for (uint32_t k = 1; k < NDP_JOURNAL_RECORDS; k++)
        begin(w, &other, NDP_WORK_ALL_REDUCE, k, 0);
    assert_int_equal(progress(w, 1, 5, -1), NDP_PROGRESS_NOT_BEGUN);
    begin(w, &other, NDP_WORK_ALL_REDUCE, NDP_JOURNAL_RECORDS, 0);
    assert_int_equal(progress(w, 1, 4, -1), NDP_PROGRESS_UNKNOWN);
    assert_int_equal(progress(w, 2, NDP_JOURNAL_RECORDS + 1, -1), NDP_PROGRESS_NOT_BEGUN);
}

/* ---- operations on a device ---- */

static void device_is_at(world *w, uint32_t waypoint) {
    ndp_journal_set_place(&w->journals[0], &(ndp_device_place){.waypoint = waypoint});
}

static ndp_peer_progress on_device(world *w, uint32_t sequence, bool on_host) {
    ndp_expected_op e = {.base = 0, .comm = 1, .sequence = sequence, .to = -1, .on_host = on_host};
    return ndp_journal_progress(&w->journals[0], &e);
}

/* Operation n of rank 0 begins at waypoint 10 n of its device. */
static world *with_operations(void **state) {
    world *w = *state;
    ndp_comm tp = {.transport = &w->t, .group = {0, 1, 3, 0}, .name = "tp", .number = 1};
    for (uint32_t n = 1; n <= 3; n++) {
        ndp_work work = {.comm = &tp, .kind = NDP_WORK_ALL_REDUCE, .count = 1, .waypoint = 10 * n};
        tp.operations = n;
        ndp_journal_begin(&w->journals[0], &work);
    }
    return w;
}

static void a_device_has_begun_what_its_queue_has_reached(void **state) {
    world *w = with_operations(state);
    assert_int_equal(on_device(w, 2, false).progress, NDP_PROGRESS_NOT_BEGUN); /* it is not known where it is */
    device_is_at(w, 19);
    assert_int_equal(on_device(w, 1, false).progress, NDP_PROGRESS_BEGUN);
    assert_int_equal(on_device(w, 2, false).progress, NDP_PROGRESS_NOT_BEGUN);
    assert_int_equal(on_device(w, 2, true).progress, NDP_PROGRESS_BEGUN);
    assert_int_equal(on_device(w, 4, true).progress, NDP_PROGRESS_NOT_BEGUN);
    device_is_at(w, 20);
    assert_int_equal(on_device(w, 2, false).progress, NDP_PROGRESS_BEGUN);
    assert_int_equal(on_device(w, 3, false).progress, NDP_PROGRESS_NOT_BEGUN);
}

/* A wait of the host stops only what it has not submitted; a wait of the device, all that follows it. */
static void a_wait_of_the_host_does_not_stop_its_device(void **state) {
    world *w = with_operations(state);
    ndp_comm other = {.transport = &w->t, .group = {0, 1, 2, 0}, .name = "dp", .number = 2};
    ndp_work work = {.comm = &other, .kind = NDP_WORK_BARRIER};
    device_is_at(w, 25);
    ndp_journal_begin(&w->journals[0], &work);
    ndp_journal_wait_begin(&w->journals[0], &work, 1);
    assert_int_equal(on_device(w, 3, false).progress, NDP_PROGRESS_NOT_BEGUN);
    assert_int_equal(on_device(w, 3, false).wait, 0);
    assert_int_equal(on_device(w, 4, false).wait, 1);
    ndp_journal_set_on_device(&w->journals[0], true);
    assert_int_equal(on_device(w, 3, false).wait, 1);
}

/* ---- the time limit ---- */

static void goes_on_at(world *w, int rank, double since) {
    ndp_journal_set_place(&w->journals[rank],
                          &(ndp_device_place){.doing = "forward", .waypoint = 7, .since = since, .seen = since});
}

/* Rank 0 waits since second 80, for 10 seconds. */
static ndp_status limit_at(world *w, double now) {
    ndp_comm tp = {.transport = &w->t, .group = {0, 1, WORLD, 0}, .name = "tp", .number = 1};
    const ndp_work work = {.comm = &tp, .kind = NDP_WORK_ALL_REDUCE};
    w->t.timeout = 10;
    return ndp_watchdog_check_limit(&work, -1, 80, now);
}

static void a_limit_is_for_devices_that_stay(void **state) {
    world *w = *state;
    block(w, 0, 7, 2, 31);
    block(w, 2, 31, 3, 5);
    CHECK_OK(limit_at(w, 90));
    CHECK_FAILS(limit_at(w, 90.5), NDP_ECOMM, "rank 2 has not arrived");
    for (int rank = 0; rank <= 3; rank += rank ? 1 : 2) { /* this rank, the missing one, the one that waits for */
        double since = 90 + 5 * rank;
        goes_on_at(w, rank, since);
        CHECK_OK(limit_at(w, since + 10));
        CHECK_FAILS(limit_at(w, since + 10.5), NDP_ECOMM, "rank 2 has not arrived");
    }
    goes_on_at(w, 1, 200); /* no rank waits for it */
    CHECK_FAILS(limit_at(w, 200), NDP_ECOMM, "rank 2 has not arrived");
}

static void messages_are_those_of_a_kind(void **state) {
    world *w = *state;
    ndp_comm pp = {.transport = &w->t, .group = {0, 1, 3, 0}, .name = "pp", .number = 1};
    begin(w, &pp, NDP_WORK_SEND, 3, 2);
    ndp_expected_op e = {.base = 0, .comm = 1, .sequence = 3, .to = 2};
    assert_int_equal(ndp_journal_progress(&w->journals[0], &e).progress, NDP_PROGRESS_BEGUN);
    e.receive = true;
    assert_int_equal(ndp_journal_progress(&w->journals[0], &e).progress, NDP_PROGRESS_NOT_BEGUN);
}

static void the_last_common_operation_is_found(void **state) {
    world *w = *state;
    ndp_comm tp = {.transport = &w->t, .group = {0, 2, 2, 0}, .name = "tp", .number = 1};
    ndp_work work = {.comm = &tp, .kind = NDP_WORK_ALL_REDUCE, .count = 3};
    ndp_record last;
    ndp_journal_begin(&w->journals[0], &work);
    assert_false(ndp_journal_last_with(&w->journals[0], 2, &last)); /* not ended */
    ndp_journal_end(&w->journals[0], &work);
    assert_false(ndp_journal_last_with(&w->journals[0], 1, &last)); /* not of the group */
    assert_true(ndp_journal_last_with(&w->journals[0], 2, &last));
    assert_int_equal(last.count, 3);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make, drop)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_cycle_names_all_its_ranks),
        TEST(a_stale_edge_makes_no_cycle),
        TEST(a_guess_makes_no_cycle),
        TEST(a_rank_outside_a_wait_makes_no_cycle),
        TEST(a_cycle_of_others_is_theirs),
        TEST(a_gate_is_certain_after_two_polls),
        TEST(a_journal_says_what_was_begun),
        TEST(a_full_journal_does_not_guess),
        TEST(a_device_has_begun_what_its_queue_has_reached),
        TEST(a_wait_of_the_host_does_not_stop_its_device),
        TEST(a_limit_is_for_devices_that_stay),
        TEST(messages_are_those_of_a_kind),
        TEST(the_last_common_operation_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
