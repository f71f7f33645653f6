/* When a ring of waiting ranks is certain, and what a journal can tell of a rank that did not come. Journals are made
 * up here; tests/comm/test_processes.c has real ones. */
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

/* Rank `rank` is asleep in its wait number `wait`, for another that cannot come while it is in its wait `in`. */
static void asleep(world *w, int rank, uint32_t wait, int awaits, uint32_t in) {
    ndp_standing s = {.known = true,
                      .waits = wait,
                      .awaits = awaits,
                      .awaits_in = in,
                      .at = {.instr = -1},
                      .record = {.kind = NDP_WORK_ALL_REDUCE, .count = 5, .at = {.instr = 40 + rank, .call = -1}}};
    snprintf(s.record.group, sizeof s.record.group, "tp");
    ndp_journal_put(&w->journals[rank], &s);
}

static ndp_status look(world *w) { return ndp_watchdog_look(&(ndp_watch){0}, &w->t, 1); }

static void a_ring_names_all_of_it(void **state) {
    world *w = *state;
    asleep(w, 0, 7, 2, 31);
    asleep(w, 2, 31, 3, 5);
    asleep(w, 3, 5, 0, 7);
    CHECK_FAILS(look(w), NDP_ECOMM, "rank 0 waits at #40 all_reduce");
    assert_non_null(strstr(ndp_error_message(), "rank 2 waits at #42 all_reduce"));
    assert_non_null(strstr(ndp_error_message(), "rank 3 waits at #43 all_reduce"));
    assert_non_null(strstr(ndp_error_message(), ", for rank 3"));
}

/* What was said of rank 2 holds for a wait that it has left since. */
static void an_old_claim_makes_no_ring(void **state) {
    world *w = *state;
    asleep(w, 0, 7, 2, 29);
    asleep(w, 2, 31, 0, 7);
    CHECK_OK(look(w));
    asleep(w, 0, 7, 2, 31);
    asleep(w, 2, 31, 0, 5); /* of this rank's own wait */
    CHECK_OK(look(w));
    asleep(w, 2, 31, 0, 7);
    CHECK_FAILS(look(w), NDP_ECOMM, "ranks wait for each other");
}

static void a_guess_makes_no_ring(void **state) {
    world *w = *state;
    asleep(w, 0, 7, 2, 31);
    asleep(w, 2, 31, 0, 0);
    CHECK_OK(look(w));
}

static void who_is_awake_makes_no_ring(void **state) {
    world *w = *state;
    asleep(w, 0, 7, 2, 31);
    asleep(w, 2, 32, 0, 7);
    CHECK_OK(look(w));
}

/* Rank 0 waits for a ring that it is not in: those ranks say so. */
static void a_ring_of_others_is_theirs(void **state) {
    world *w = *state;
    asleep(w, 0, 7, 1, 3);
    asleep(w, 1, 3, 2, 31);
    asleep(w, 2, 31, 1, 3);
    CHECK_OK(look(w));
}

/* A gate's rank is certain to be of no help once it has looked twice in the same wait. */
static void a_gate_is_certain_after_two_looks(void **state) {
    world *w = *state;
    ndp_watch v = {0};
    asleep(w, 1, 3, -1, 0);
    assert_int_equal(ndp_watchdog_asleep(&v, &w->t, 1), 0);
    ndp_journal_look(&w->journals[1], 1);
    assert_int_equal(ndp_watchdog_asleep(&v, &w->t, 1), 0);
    ndp_journal_look(&w->journals[1], 2);
    assert_int_equal(ndp_watchdog_asleep(&v, &w->t, 1), 3);
    asleep(w, 1, 5, -1, 0);
    assert_int_equal(ndp_watchdog_asleep(&v, &w->t, 1), 0);
    asleep(w, 1, 6, -1, 0);
    assert_int_equal(ndp_watchdog_asleep(&v, &w->t, 1), 0);
}

/* ---- what a journal says ---- */

static void begin(world *w, ndp_comm *c, int kind, uint32_t sequence, int peer) {
    ndp_work work = {.comm = c, .kind = kind, .count = 1, .peer = peer};
    c->operations = sequence;
    ndp_journal_begin(&w->journals[0], &work);
    if (kind == NDP_WORK_SEND)
        ndp_journal_number(&w->journals[0], &work, sequence);
}

static ndp_come come(world *w, uint32_t comm, uint32_t sequence, int to) {
    ndp_awaited a = {.base = 0, .comm = comm, .sequence = sequence, .to = to};
    return ndp_journal_judge(&w->journals[0], &a).come;
}

static void a_journal_says_what_was_begun(void **state) {
    world *w = *state;
    ndp_comm tp = {.transport = &w->t, .group = {0, 1, 3, 0}, .name = "tp", .number = 1}, other = tp;
    other.number = 2;
    assert_int_equal(come(w, 1, 1, -1), NDP_COME_NO);
    begin(w, &tp, NDP_WORK_ALL_REDUCE, 4, 0);
    begin(w, &tp, NDP_WORK_SEND, 9, 2);
    begin(w, &other, NDP_WORK_ALL_REDUCE, 8, 0);
    assert_int_equal(come(w, 1, 4, -1), NDP_COME_YES);
    assert_int_equal(come(w, 1, 5, -1), NDP_COME_NO);
    assert_int_equal(come(w, 1, 9, 2), NDP_COME_YES);
    assert_int_equal(come(w, 1, 10, 2), NDP_COME_NO);
    assert_int_equal(come(w, 1, 9, 1), NDP_COME_NO);
    assert_int_equal(come(w, 1, 0, -1), NDP_COME_UNKNOWN); /* nobody knows what is waited for */
}

/* Where records are lost nothing is said that they might have told. */
static void a_full_journal_does_not_guess(void **state) {
    world *w = *state;
    ndp_comm tp = {.transport = &w->t, .group = {0, 1, 3, 0}, .name = "tp", .number = 1}, other = tp;
    other.number = 2;
    begin(w, &tp, NDP_WORK_ALL_REDUCE, 4, 0);
    for (uint32_t k = 1; k < NDP_JOURNAL_RECORDS; k++)
        begin(w, &other, NDP_WORK_ALL_REDUCE, k, 0);
    assert_int_equal(come(w, 1, 5, -1), NDP_COME_NO);
    begin(w, &other, NDP_WORK_ALL_REDUCE, NDP_JOURNAL_RECORDS, 0);
    assert_int_equal(come(w, 1, 4, -1), NDP_COME_UNKNOWN);
    assert_int_equal(come(w, 2, NDP_JOURNAL_RECORDS + 1, -1), NDP_COME_NO);
}

static void the_last_meeting_is_remembered(void **state) {
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
        TEST(a_ring_names_all_of_it),         TEST(an_old_claim_makes_no_ring),
        TEST(a_guess_makes_no_ring),          TEST(who_is_awake_makes_no_ring),
        TEST(a_ring_of_others_is_theirs),     TEST(a_gate_is_certain_after_two_looks),
        TEST(a_journal_says_what_was_begun),  TEST(a_full_journal_does_not_guess),
        TEST(the_last_meeting_is_remembered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
