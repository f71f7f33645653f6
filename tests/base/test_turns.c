/* Ranks that take turns: each ends, none loses what is its own, and a seed is an order. */
#include "base/fault.h"
#include "base/turns.h"
#include "check.h"

#include <omp.h>

enum { RANKS = 7, ROUNDS = 40, MOST = RANKS * ROUNDS + RANKS };

typedef struct shared {
    int at, order[MOST]; /* who ran, turn by turn */
    bool nested;
} shared;

typedef struct rank {
    shared *all;
    int number, left; /* rounds */
} rank;

static void nested_body(void *arg) {
    rank *r = arg;
    for (int i = 0; i < 3; i++) {
        (void)NDP_FAIL(NDP_EIO, "nested %d", r->number);
        ndp_yield();
        r->left -= strcmp(ndp_error_message(), "nested 0") == 0;
    }
}

/* Between two turns everything that belongs to a rank stays: its error, fault points, threads and variables. */
static void body(void *arg) {
    rank *r = arg;
    char mine[32];
    snprintf(mine, sizeof mine, "rank %d", r->number);
    assert_string_equal(ndp_error_message(), "");
    assert_int_equal(ndp_fault_passed(NDP_FAULT_SYNC), 0);
    omp_set_num_threads(1 + r->number);
    ndp_fault_arm(NDP_FAULT_SYNC, ROUNDS + 1 + r->number);
    for (; r->left > 0; r->left--) {
        if (r->left % 3 == 0)
            (void)NDP_FAIL(NDP_EIO, "%s", mine);
        r->all->order[r->all->at++] = r->number;
        assert_false(ndp_fault(NDP_FAULT_SYNC));
        ndp_yield();
        assert_true(!*ndp_error_message() || strcmp(ndp_error_message(), mine) == 0);
        assert_int_equal(omp_get_max_threads(), 1 + r->number);
    }
    assert_int_equal(ndp_fault_passed(NDP_FAULT_SYNC), ROUNDS - r->number);
    if (r->all->nested && r->number == 2) {
        rank inner = {r->all, 0, 3};
        void *args[] = {&inner};
        CHECK_OK(ndp_turns_run(1, nested_body, args, 5));
        assert_int_equal(inner.left, 0);
        assert_int_equal(omp_get_max_threads(), 3);
    }
}

static shared run(int n, uint64_t seed, bool nested) {
    shared all = {.nested = nested};
    rank ranks[RANKS];
    void *args[RANKS];
    for (int i = 0; i < n; i++) {
        ranks[i] = (rank){&all, i, ROUNDS - i}; /* some leave before others */
        args[i] = &ranks[i];
    }
    (void)NDP_FAIL(NDP_EINVAL, "the caller's");
    ndp_fault_arm(NDP_FAULT_WRITE, 9);
    int threads = omp_get_max_threads();
    CHECK_OK(ndp_turns_run(n, body, args, seed));
    assert_string_equal(ndp_error_message(), "the caller's");
    assert_int_equal(omp_get_max_threads(), threads);
    assert_false(ndp_fault_fired(NDP_FAULT_WRITE));
    ndp_fault_arm(NDP_FAULT_WRITE, 0);
    int rounds = 0;
    for (int i = 0; i < n; i++) {
        assert_int_equal(ranks[i].left, 0);
        rounds += ROUNDS - i;
    }
    assert_int_equal(all.at, rounds);
    return all;
}

static void each_keeps_its_own(void **state) {
    (void)state;
    for (int n = 1; n <= RANKS; n++)
        run(n, (uint64_t)n, n > 2);
}

/* How often one of them ran twice in a row, and whether each was the first for some seed. */
static void a_seed_is_an_order(void **state) {
    (void)state;
    int differ = 0, first = 0;
    for (uint64_t seed = 0; seed < 60; seed++) {
        shared a = run(RANKS, seed, false), b = run(RANKS, seed, false), c = run(RANKS, seed + 1, false);
        assert_memory_equal(a.order, b.order, sizeof a.order);
        differ += memcmp(a.order, c.order, sizeof a.order) != 0;
        first |= 1 << a.order[0];
        for (int i = 1; i < RANKS * ROUNDS / 2; i++) /* while there are several */
            assert_int_not_equal(a.order[i], a.order[i - 1]);
    }
    assert_int_equal(differ, 60);
    assert_int_equal(first, (1 << RANKS) - 1);
}

static void alone_nothing_is_passed(void **state) {
    (void)state;
    assert_false(ndp_turn_pass());
    ndp_yield();
    ndp_nap(1e-4);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_keeps_its_own), cmocka_unit_test(a_seed_is_an_order),
                                       cmocka_unit_test(alone_nothing_is_passed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
