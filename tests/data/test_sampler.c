/* The order of samples: permutations, equal on every layout. */
#include "data/sampler.h"

#include "check.h"
#include <stdlib.h>

/* Without a mix. */
static ndp_sampler order(int64_t rows, uint64_t seed, bool shuffle) {
    return (ndp_sampler){.rows = rows, .seed = seed, .shuffle = shuffle};
}

static void an_epoch_is_a_permutation(void **state) {
    (void)state;
    static const int64_t sizes[] = {1, 2, 3, 4, 5, 7, 16, 17, 255, 256, 257, 1000, 4097};
    for (int i = 0; i < NDP_COUNT(sizes); i++)
        for (int64_t epoch = 0; epoch < 3; epoch++) {
            ndp_sampler s = order(sizes[i], 42, true);
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
    ndp_sampler a = order(1000, 1, true), b = order(1000, 2, true), plain = order(1000, 1, false);
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
    ndp_sampler s = order(64, 7, true);
    double counts[64] = {0}, chi = 0;
    for (int64_t epoch = 0; epoch < 64000; epoch++)
        counts[ndp_sampler_row(&s, epoch * 64)]++;
    for (int i = 0; i < 64; i++)
        chi += (counts[i] - 1000) * (counts[i] - 1000) / 1000;
    assert_true(chi < 140);
}

static void large_sets_stay_in_range(void **state) {
    (void)state;
    ndp_sampler s = order(((int64_t)1 << 40) + 3, 5, true);
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

/* ---- mixes ---- */

enum { SOURCES = 4, EPOCHS = 7 };

/* Of sources of 100, 40, 1 and 30 rows an epoch takes 1, 0.5, 3 and 2.4 times as many. */
static ndp_sampler mix(ndp_mix_source sources[SOURCES], bool shuffle) {
    static const int64_t rows[SOURCES] = {100, 40, 1, 30};
    static const double weights[SOURCES] = {1, 0.5, 3, 2.4};
    ndp_sampler s = {.seed = 3, .shuffle = shuffle, .sources = sources, .n_sources = SOURCES};
    int64_t first = 0;
    for (int i = 0; i < SOURCES; first += rows[i++]) {
        sources[i] = (ndp_mix_source){first, rows[i], ndp_mix_taken(rows[i], weights[i])};
        s.rows += sources[i].taken;
    }
    assert_int_equal(s.rows, 100 + 20 + 3 + 72);
    return s;
}

/* In every epoch each part gives what its weight asks for, and no row of it comes once more than another does, but by
 * the one pass that an epoch begins. */
static void a_mix_takes_parts_by_their_weights(void **state) {
    (void)state;
    for (int shuffle = 0; shuffle < 2; shuffle++) {
        ndp_mix_source sources[SOURCES];
        ndp_sampler s = mix(sources, shuffle);
        for (int64_t epoch = 0; epoch < EPOCHS; epoch++) {
            int count[171] = {0};
            for (int64_t k = 0; k < s.rows; k++) {
                int64_t row = ndp_sampler_row(&s, epoch * s.rows + k);
                assert_in_range(row, 0, 170);
                count[row]++;
            }
            for (int i = 0; i < SOURCES; i++) {
                int64_t sum = 0, least = sources[i].taken / sources[i].rows;
                for (int64_t r = 0; r < sources[i].rows; r++) {
                    int c = count[sources[i].first + r];
                    assert_true(c == least || c == least + 1);
                    sum += c;
                }
                assert_int_equal(sum, sources[i].taken);
            }
        }
    }
}

/* Half of a part is another half in the next epoch; in order, epochs go on where the last one stopped. */
static void all_of_a_part_comes_in_the_end(void **state) {
    (void)state;
    for (int shuffle = 0; shuffle < 2; shuffle++) {
        ndp_mix_source sources[SOURCES];
        ndp_sampler s = mix(sources, shuffle);
        int count[40] = {0}, most = 0, least = EPOCHS;
        for (int64_t k = 0; k < (EPOCHS + 1) * s.rows; k++) {
            int64_t row = ndp_sampler_row(&s, k) - sources[1].first;
            if (row >= 0 && row < 40)
                count[row]++;
        }
        for (int i = 0; i < 40; i++) {
            most = count[i] > most ? count[i] : most;
            least = count[i] < least ? count[i] : least;
        }
        assert_true(shuffle ? least > 0 && most < EPOCHS + 1 : least == 4 && most == 4);
    }
}

static void weights_at_their_edges(void **state) {
    (void)state;
    assert_int_equal(ndp_mix_taken(10, 0), 0);
    assert_int_equal(ndp_mix_taken(0, 5), 0);
    assert_int_equal(ndp_mix_taken(10, 0.001), 1);
    assert_int_equal(ndp_mix_taken(10, 1), 10);
    assert_int_equal(ndp_mix_taken(10, 2.26), 23);
    ndp_mix_source sources[] = {{0, 5, 0}, {5, 3, 3}};
    ndp_sampler s = {.rows = 3, .shuffle = true, .sources = sources, .n_sources = 2};
    for (int k = 0; k < 30; k++)
        assert_in_range(ndp_sampler_row(&s, k), 5, 7);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_epoch_is_a_permutation),
        cmocka_unit_test(seed_and_epoch_change_the_order),
        cmocka_unit_test(places_are_uniform),
        cmocka_unit_test(large_sets_stay_in_range),
        cmocka_unit_test(an_update_reads_the_same_on_every_layout),
        cmocka_unit_test(a_mix_takes_parts_by_their_weights),
        cmocka_unit_test(all_of_a_part_comes_in_the_end),
        cmocka_unit_test(weights_at_their_edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
