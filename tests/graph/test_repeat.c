/* Walks over repeated ranges against lists that are written out. */
#include "base/rng.h"
#include "check.h"
#include "graph/repeat.h"

enum { MOST_RANGES = 3, MOST_STEPS = 600 };

typedef struct visit {
    int at;
    int64_t micro_batch;
} visit;

static int draw(uint64_t set, uint64_t what, int below) { return (int)ndp_rng_below(9, set, what, (uint64_t)below); }

/* Ranges of a list of *n entries: side by side or apart, empty at the ends or not, some executed no times. */
static ndp_repeats random_ranges(uint64_t set, ndp_repeat *items, int *n) {
    ndp_repeats r = {items, draw(set, 0, MOST_RANGES + 1)};
    *n = draw(set, 1, 3);
    for (int i = 0; i < r.n; i++) {
        uint64_t k = 10 * (uint64_t)(i + 1);
        items[i] = (ndp_repeat){*n, 1 + draw(set, k, 4), draw(set, k + 1, 9), draw(set, k + 2, 3), false};
        *n += items[i].n + draw(set, k + 3, 3);
    }
    return r;
}

/* The entries that a walk visits. The numbers of micro-batches count from the end: what is left out is before. */
static int write_out(const ndp_repeats *r, int n, ndp_visits v, visit *out) {
    int steps = 0;
    int64_t base = 0;
    for (int i = 0; i < r->n; i++)
        for (int64_t k = 0; k < r->items[i].times; k++)
            base += k >= v.first && k - v.first < v.without ? r->items[i].micro_batches : 0;
    for (int at = 0, range = 0; at < n; range++) {
        const ndp_repeat *x = range < r->n ? &r->items[range] : NULL;
        for (int end = x ? x->first : n; at < end; at++)
            out[steps++] = (visit){at, base};
        int64_t visited = 0;
        for (int64_t k = 0; x && k < x->times; k++) {
            bool left_out = k >= v.first && k - v.first < v.without;
            base -= left_out ? x->micro_batches : 0;
            for (int i = 0; i < x->n && !left_out; i++)
                out[steps++] = (visit){x->first + i, 0};
            visited += !left_out;
        }
        /* numbered side by side */
        for (int64_t k = 0; x && k < visited; k++)
            for (int i = 0; i < x->n; i++)
                out[steps - (visited - k) * x->n + i].micro_batch = k * x->micro_batches;
        int64_t before = base;
        for (int64_t k = 0; x && k < x->times; k++)
            before += k >= v.first && k - v.first < v.without ? x->micro_batches : 0;
        for (int64_t k = 0; x && k < visited * x->n; k++)
            out[steps - visited * x->n + k].micro_batch += before;
        at = x ? x->first + x->n : at;
    }
    return steps;
}

static void walks_are_lists_written_out(void **state) {
    (void)state;
    for (uint64_t set = 0; set < 3000; set++) {
        ndp_repeat items[MOST_RANGES];
        visit wanted[MOST_STEPS];
        int n;
        ndp_repeats r = random_ranges(set, items, &n);
        ndp_visits ways[] = {
            NDP_ALL_ITERATIONS, NDP_FIRST_ITERATIONS(1), NDP_FIRST_ITERATIONS(2), {2, draw(set, 5, 6), false}};
        for (int k = 0; k < NDP_COUNT(ways); k++) {
            int steps = write_out(&r, n, ways[k], wanted), i = 0;
            ndp_walk w = NDP_WALK_START;
            for (; ndp_walk_next(&r, n, ways[k], &w); i++) {
                assert_in_range(i, 0, steps - 1);
                assert_int_equal(w.at, wanted[i].at);
                assert_int_equal(w.micro_batch, wanted[i].micro_batch);
                assert_int_equal(w.executed, i);
            }
            assert_int_equal(i, steps);
            assert_int_equal(w.executed, steps);
        }
        int64_t executed = 0;
        for (int i = 0; i < n; i++)
            executed += ndp_repeats_times(&r, i);
        assert_int_equal(ndp_repeats_executed(&r, n), executed);
    }
}

/* A range whose count the data decide is visited twice at most, and not at all where the usual is asked for. */
static void counted_ranges(void **state) {
    (void)state;
    for (uint64_t set = 0; set < 1000; set++) {
        ndp_repeat items[2][MOST_RANGES];
        int n;
        ndp_repeats counted = random_ranges(set, items[0], &n), plain = {items[1], counted.n};
        for (int usual = 0; usual < 2; usual++) {
            for (int i = 0; i < counted.n; i++) {
                int64_t most = usual ? 0 : 2;
                items[0][i].micro_batches = 0, items[0][i].counted = true;
                items[1][i] = items[0][i], items[1][i].counted = false;
                items[1][i].times = items[1][i].times < most ? items[1][i].times : most;
            }
            ndp_walk a = NDP_WALK_START, b = NDP_WALK_START;
            while (ndp_walk_next(&plain, n, NDP_ALL_ITERATIONS, &a)) {
                assert_true(ndp_walk_next(&counted, n, usual ? NDP_USUAL_ITERATIONS : NDP_ALL_ITERATIONS, &b));
                assert_int_equal(a.at, b.at);
            }
            assert_false(ndp_walk_next(&counted, n, usual ? NDP_USUAL_ITERATIONS : NDP_ALL_ITERATIONS, &b));
            assert_true(!usual || ndp_repeats_executed(&counted, n) == ndp_repeats_executed(&plain, n));
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(walks_are_lists_written_out), cmocka_unit_test(counted_ranges)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
