/* The order of samples: permutations, equal on every layout. */
#include "data/sampler.h"

#include "check.h"
#include <stdlib.h>

static void an_epoch_is_a_permutation(void **state) {
    (void)state;
    static const int64_t sizes[] = {1, 2, 3, 4, 5, 7, 16, 17, 255, 256, 257, 1000, 4097};
    for (int i = 0; i < NDP_COUNT(sizes); i++)
        for (int64_t epoch = 0; epoch < 3; epoch++) {
            ndp_sampler s = {sizes[i], 42, true};
            static char seen[5000];
            memset(seen, 0, sizeof seen);
            for (int64_t k = 0; k < s.rows; k++) {
                int64_t row = ndp_sampler_row(&s, epoch * s.rows + k);
                assert_true(row >= 0 && row < s.rows);
                assert_int_equal(seen[(size_t)row % sizeof seen]++, 0);
            }
        }
}

/* Of how many rows of 1,000 a change of the seed or the epoch leaves the place: 1 in the mean. */
static int64_t in_place(ndp_sampler a, int64_t from_a, ndp_sampler b, int64_t from_b) {
    int64_t same = 0;
    for (int64_t k = 0; k < 1000; k++)
        same += ndp_sampler_row(&a, from_a + k) == ndp_sampler_row(&b, from_b + k);
    return same;
}

static void seed_and_epoch_change_the_order(void **state) {
    (void)state;
    ndp_sampler a = {1000, 1, true}, b = {1000, 2, true}, plain = {1000, 1, false};
    assert_true(in_place(a, 0, b, 0) < 10);
    assert_true(in_place(a, 0, a, 1000) < 10);
    assert_true(in_place(a, 0, plain, 0) < 10);
    assert_int_equal(in_place(a, 3000, a, 3000), 1000);
    assert_int_equal(in_place(plain, 0, plain, 5000), 1000);
    assert_int_equal(ndp_sampler_row(&plain, 5017), 17);
}

/* Where row 0 of 64 goes over 64,000 epochs: chi-squared with 63 degrees of freedom, 140 is beyond 1 in 10^6. */
static void places_are_uniform(void **state) {
    (void)state;
    ndp_sampler s = {64, 7, true};
    double counts[64] = {0}, chi = 0;
    for (int64_t epoch = 0; epoch < 64000; epoch++)
        counts[ndp_sampler_row(&s, epoch * 64)]++;
    for (int i = 0; i < 64; i++)
        chi += (counts[i] - 1000) * (counts[i] - 1000) / 1000;
    assert_true(chi < 140);
}

static void large_sets_stay_in_range(void **state) {
    (void)state;
    ndp_sampler s = {((int64_t)1 << 40) + 3, 5, true};
    for (int64_t k = 0; k < 1000; k++) {
        int64_t row = ndp_sampler_row(&s, s.rows * 9 + k);
        assert_true(row >= 0 && row < s.rows);
    }
}

/* An update reads the same samples on every layout, each once; the next update goes on where it ended. */
static void an_update_reads_the_same_on_every_layout(void **state) {
    (void)state;
    enum { GLOBAL = 24 };
    static const int layouts[][2] = {{1, 1}, {1, 24}, {24, 1}, {2, 3}, {4, 2}, {3, 4}, {8, 3}}; /* data ranks, micro */
    for (int i = 0; i < NDP_COUNT(layouts); i++) {
        ndp_batch_shape b = {GLOBAL, layouts[i][1], layouts[i][0]};
        int64_t accumulation = GLOBAL / (b.micro * b.data_ranks);
        for (int64_t u = 0; u < 3; u++) {
            int seen[GLOBAL] = {0};
            for (int64_t m = 0; m < accumulation; m++)
                for (int64_t d = 0; d < b.data_ranks; d++)
                    for (int64_t j = 0; j < b.micro; j++) {
                        int64_t at = ndp_sample_index(&b, u, m, d, j) - u * GLOBAL;
                        assert_true(at >= 0 && at < GLOBAL);
                        assert_int_equal(seen[at]++, 0);
                    }
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_epoch_is_a_permutation),
        cmocka_unit_test(seed_and_epoch_change_the_order),
        cmocka_unit_test(places_are_uniform),
        cmocka_unit_test(large_sets_stay_in_range),
        cmocka_unit_test(an_update_reads_the_same_on_every_layout),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
