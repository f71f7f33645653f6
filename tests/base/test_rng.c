#include "base/rng.h"
#include "check.h"

#include <math.h>
#include <stdlib.h>

/* Known answers of Philox 4x32-10, from the authors' kat_vectors: counter words are (index, stream), key is seed. */
static void philox_known_answers(void **state) {
    (void)state;
    static const struct {
        uint64_t seed, stream, index;
        uint32_t words[4];
    } cases[] = {
        {0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {UINT64_MAX, UINT64_MAX, UINT64_MAX, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88, {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}};
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        uint32_t words[4];
        ndp_rng_words(cases[i].seed, cases[i].stream, cases[i].index, words);
        assert_memory_equal(words, cases[i].words, sizeof words);
    }
}

static void streams_differ_by_name(void **state) {
    (void)state;
    assert_int_equal(ndp_rng_stream(""), 0x2d06800538d394c2); /* XXH3 of nothing */
    assert_int_not_equal(ndp_rng_stream("layers.1.norm"), ndp_rng_stream("layers.2.norm"));
    assert_int_equal(ndp_rng_stream("shuffle"), ndp_rng_stream("shuffle"));
}

static void below_is_uniform(void **state) {
    (void)state;
    int counts[7] = {0};
    for (uint64_t i = 0; i < 70000; i++) {
        uint64_t v = ndp_rng_below(1, 2, i, 7);
        assert_in_range(v, 0, 6);
        counts[v]++;
    }
    for (int k = 0; k < 7; k++)
        assert_in_range(counts[k], 10000 - 500, 10000 + 500); /* 5.4 standard deviations */
    assert_int_equal(ndp_rng_below(1, 2, 3, 1), 0);
}

static void uniform_is_in_zero_one(void **state) {
    (void)state;
    double sum = 0, square = 0;
    int n = 100000;
    for (int i = 0; i < n; i++) {
        double u = ndp_rng_uniform(42, 7, (uint64_t)i);
        assert_true(u >= 0 && u < 1);
        sum += u;
        square += u * u;
    }
    assert_true(fabs(sum / n - 0.5) < 0.005);
    assert_true(fabs(square / n - 1.0 / 3) < 0.005);
}

static void normal_depends_on_the_element_alone(void **state) {
    (void)state;
    enum { N = 1000 };
    float whole[N], piece[N];
    ndp_rng_normal(42, 9, 0, N, 0.02, whole);
    for (int first = 0; first < 9; first++)
        for (int n = 0; n < 11; n++) {
            piece[n] = -7; /* must stay */
            ndp_rng_normal(42, 9, (uint64_t)first, n, 0.02, piece);
            assert_memory_equal(piece, whole + first, (size_t)n * sizeof(float));
            assert_true(piece[n] == -7);
        }
    ndp_rng_normal(42, 9, 501, N - 501, 0.02, piece);
    assert_memory_equal(piece, whole + 501, (N - 501) * sizeof(float));
    ndp_rng_normal(43, 9, 0, N, 0.02, piece);
    assert_memory_not_equal(piece, whole, sizeof whole);
}

/* Against Box and Muller's formula in double precision, of the same words. */
static void normal_is_box_muller(void **state) {
    (void)state;
    for (uint64_t i = 0; i < 200000; i++) {
        uint32_t w[4];
        float z[4];
        ndp_rng_words(5, 6, i, w);
        ndp_rng_normal(5, 6, 4 * i, 4, 1, z);
        for (int k = 0; k < 4; k += 2) {
            double r = sqrt(-2 * log(w[k] * 0x1p-32 + 0x1p-33)), a = w[k + 1] * (2 * M_PI * 0x1p-32);
            /* near u = 1 the radius is as coarse as float's u: its error is up to 2^-25 / r */
            double bound = 1e-6 + 6e-8 / (r + 1e-4);
            assert_true(fabs(z[k] - r * cos(a)) < bound && fabs(z[k + 1] - r * sin(a)) < bound);
        }
    }
}

static void normal_has_its_moments(void **state) {
    (void)state;
    enum { N = 1 << 20 };
    float *z = malloc(N * sizeof *z);
    ndp_rng_normal(1, 2, 0, N, 0.5, z);
    double m[5] = {0}, lag = 0;
    int beyond3 = 0;
    for (int i = 0; i < N; i++) {
        double x = z[i] / 0.5, p = x;
        assert_true(isfinite(x));
        for (int k = 1; k <= 4; k++, p *= x)
            m[k] += p / N;
        beyond3 += fabs(x) > 3;
        lag += i ? x * z[i - 1] / 0.5 / N : 0;
    }
    free(z);
    /* five standard errors each: sqrt(1, 2, 15, 96 / N) */
    assert_true(fabs(m[1]) < 5 * sqrt(1.0 / N));
    assert_true(fabs(m[2] - 1) < 5 * sqrt(2.0 / N));
    assert_true(fabs(m[3]) < 5 * sqrt(15.0 / N));
    assert_true(fabs(m[4] - 3) < 5 * sqrt(96.0 / N));
    assert_true(fabs(lag) < 5 * sqrt(1.0 / N));
    assert_true(fabs((double)beyond3 / N - 0.0026998) < 5 * sqrt(0.0027 / N));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(philox_known_answers),
                                       cmocka_unit_test(streams_differ_by_name),
                                       cmocka_unit_test(below_is_uniform),
                                       cmocka_unit_test(uniform_is_in_zero_one),
                                       cmocka_unit_test(normal_depends_on_the_element_alone),
                                       cmocka_unit_test(normal_is_box_muller),
                                       cmocka_unit_test(normal_has_its_moments)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
