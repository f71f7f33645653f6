/* Interval allocation against brute force: blocks that live at the same time never share a byte, and the total lies
 * between what lives at the fullest step and the sum of all. */
#include "base/rng.h"
#include "check.h"
#include "graph/intervals.h"

enum { MOST = 60, STEPS = 40 };

static size_t aligned(size_t n) { return (n + 63) / 64 * 64; }

static uint64_t draw(uint64_t set, int item, int what, uint64_t below) {
    return ndp_rng_below(5, set, (uint64_t)(item * 8 + what), below);
}

static bool lives_at(const ndp_interval *a, int step) {
    const ndp_life *l = &a->life;
    return step >= l->first && step <= l->last && (l->gap_n == 0 || step < l->gap || step >= l->gap + l->gap_n);
}

static bool share_a_step(const ndp_interval *a, const ndp_interval *b) {
    for (int step = 0; step < STEPS; step++)
        if (lives_at(a, step) && lives_at(b, step))
            return true;
    return false;
}

/* Returns the total beside the fullest step. */
static double check_set(const ndp_interval *items, int n, size_t total) {
    size_t sum = 0, fullest = 0, end = 0;
    for (int i = 0; i < n; i++) {
        const ndp_interval *a = &items[i];
        assert_int_equal(a->offset % 64, 0);
        sum += aligned(a->bytes);
        end = a->offset + aligned(a->bytes) > end ? a->offset + aligned(a->bytes) : end;
        for (int k = 0; k < i; k++) {
            const ndp_interval *b = &items[k];
            bool apart = a->offset + a->bytes <= b->offset || b->offset + b->bytes <= a->offset;
            if (share_a_step(a, b) && a->bytes > 0 && b->bytes > 0 && !apart)
                fail_msg("steps %d to %d, bytes %zu to %zu, and steps %d to %d, bytes %zu to %zu overlap",
                         a->life.first, a->life.last, a->offset, a->offset + a->bytes, b->life.first, b->life.last,
                         b->offset, b->offset + b->bytes);
        }
    }
    for (int step = 0; step < STEPS; step++) {
        size_t alive = 0;
        for (int i = 0; i < n; i++)
            alive += lives_at(&items[i], step) ? aligned(items[i].bytes) : 0;
        fullest = alive > fullest ? alive : fullest;
    }
    assert_int_equal(total, end);
    assert_in_range(total, fullest, sum);
    return fullest ? (double)total / (double)fullest : 1;
}

static void random_sets(void **state) {
    (void)state;
    double worst = 1;
    for (uint64_t set = 0; set < 500; set++) {
        ndp_interval items[MOST];
        int n = (int)(set % MOST);
        size_t total, scale = set % 10 == 9 ? 1000 : 1; /* large sets are worth a search */
        for (int i = 0; i < n; i++) {
            int first = 1 + (int)draw(set, i, 0, STEPS - 1);
            int last = first + (int)draw(set, i, 1, (uint64_t)(STEPS - first));
            bool gapped = scale == 1 && last - first > 1 && draw(set, i, 5, 2);
            int inside = gapped ? last - first - 1 : 0; /* steps that may be a gap */
            int gap_n = inside ? (int)draw(set, i, 6, (uint64_t)inside + 1) : 0;
            int gap = gap_n ? first + 1 + (int)draw(set, i, 7, (uint64_t)(inside - gap_n + 1)) : 0;
            items[i] = (ndp_interval){
                scale * (size_t)draw(set, i, 2, draw(set, i, 3, 2) ? 5000 : 200), {first, last, gap, gap_n}, 0};
        }
        if (scale > 1) /* larger than what lives when it has ended */
            items[0] = (ndp_interval){3 << 20, {0, 0, 0, 0}, 0};
        CHECK_OK(ndp_intervals_place(items, n, 0, &total));
        double ratio = check_set(items, n, total);
        if (scale > 1 && ratio > worst)
            worst = ratio;
    }
    assert_true(worst < 1.06);
    print_message("  large sets take at most %.3f of their fullest step\n", worst);
}

/* Sets with cells of several widths. */
static void large_sets(void **state) {
    (void)state;
    enum { LARGE = 1500 };
    static ndp_interval items[LARGE];
    int looser = 0;
    for (uint64_t set = 0; set < 6; set++) {
        int n = 301 + (int)draw(set, 0, 0, LARGE - 300);
        size_t total;
        for (int i = 0; i < n; i++) {
            int first = (int)draw(set, i, 1, STEPS), most = draw(set, i, 2, 3) ? 4 : STEPS;
            int last = first + (int)draw(set, i, 3, (uint64_t)most);
            items[i] = (ndp_interval){(size_t)draw(set, i, 4, 5000), {first, last < STEPS ? last : STEPS - 1, 0, 0}, 0};
        }
        size_t least, enough;
        CHECK_OK(ndp_intervals_place(items, n, 0, &least));
        assert_true(check_set(items, n, least) < 1.06);
        CHECK_OK(ndp_intervals_place(items, n, SIZE_MAX, &total)); /* the first plan is good enough */
        check_set(items, n, total);
        assert_true(total >= least);
        looser += total > least;
        enough = (least + total) / 2;
        CHECK_OK(ndp_intervals_place(items, n, enough, &total));
        check_set(items, n, total);
        assert_true(total >= least && total <= enough);
    }
    assert_true(looser > 0);
}

/* A set that differs from a known one in one number has a plan of its own. */
static void known_plans_are_of_the_same_set(void **state) {
    (void)state;
    const ndp_interval known[] = {{128, {0, 9, 3, 4}, 0}, {64, {3, 6, 0, 0}, 0}, {64, {0, 2, 0, 0}, 0}};
    for (int number = 0; number < 5; number++) {
        ndp_interval items[NDP_COUNT(known)];
        size_t total;
        for (int changed = 0; changed < 2; changed++) {
            memcpy(items, known, sizeof known);
            items[0].bytes += number == 0 && changed ? 64 : 0;
            items[1].life.first -= number == 1 && changed ? 1 : 0;
            items[1].life.last += number == 2 && changed ? 1 : 0;
            items[0].life.gap += number == 3 && changed ? 1 : 0;
            items[0].life.gap_n -= number == 4 && changed ? 1 : 0;
            for (int again = 0; again < 2; again++) {
                CHECK_OK(ndp_intervals_place(items, NDP_COUNT(known), 0, &total));
                (void)check_set(items, NDP_COUNT(known), total);
                assert_int_equal(total, !changed ? 192 : number == 0 ? 256 : number == 1 ? 256 : 192);
            }
        }
    }
}

/* Where lives only touch, or nest without sharing a step, the total is the fullest step: nothing is wasted. */
static void known_sets_are_tight(void **state) {
    (void)state;
    ndp_interval chain[] = {{64, {0, 1, 0, 0}, 0}, {128, {2, 3, 0, 0}, 0}, {192, {4, 5, 0, 0}, 0}},
                 meet[] = {{64, {0, 1, 0, 0}, 0}, {64, {1, 2, 0, 0}, 0}},
                 stairs[] = {
                     {64, {0, 9, 0, 0}, 0}, {64, {0, 2, 0, 0}, 0}, {64, {3, 5, 0, 0}, 0}, {64, {6, 9, 0, 0}, 0}};
    size_t total;
    CHECK_OK(ndp_intervals_place(chain, NDP_COUNT(chain), 0, &total));
    assert_int_equal(total, 192);
    CHECK_OK(ndp_intervals_place(meet, NDP_COUNT(meet), 0, &total)); /* both live at step 1 */
    assert_int_equal(total, 128);
    CHECK_OK(ndp_intervals_place(stairs, NDP_COUNT(stairs), 0, &total));
    assert_int_equal(total, 128);
}

/* Every rank plans by itself: equal sets get equal places. */
static void plans_repeat(void **state) {
    (void)state;
    ndp_interval a[MOST], b[MOST];
    size_t total_a, total_b;
    for (int i = 0; i < MOST; i++)
        a[i] = b[i] = (ndp_interval){64 * (size_t)(i % 3), {i % 7, i % 7 + i % 2, 0, 0}, 0};
    CHECK_OK(ndp_intervals_place(a, MOST, 0, &total_a));
    CHECK_OK(ndp_intervals_place(b, MOST, 0, &total_b));
    assert_int_equal(total_a, total_b);
    for (int i = 0; i < MOST; i++)
        assert_int_equal(a[i].offset, b[i].offset);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_sets), cmocka_unit_test(large_sets),
                                       cmocka_unit_test(known_plans_are_of_the_same_set),
                                       cmocka_unit_test(known_sets_are_tight), cmocka_unit_test(plans_repeat)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
