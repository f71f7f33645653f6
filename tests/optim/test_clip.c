#include "optim/optim.h"

#include "base/rng.h"
#include "check.h"
#include <math.h>
#include <stdlib.h>

enum { MOST = 300007 };
static float single[MOST];
static double wide[MOST];
static uint16_t half[MOST];

static void fill(void) {
    ndp_rng_normal(3, 1, 0, MOST, 1e-3, single);
    for (int i = 0; i < MOST; i++) {
        wide[i] = (double)single[i] * (1 + 1e-9 * (i % 5));
        half[i] = ndp_f32_to_bf16(single[i]);
    }
}

static const void *start(ndp_dtype type) {
    return type == NDP_F32   ? (const void *)(single + 1)
           : type == NDP_F64 ? (const void *)(wide + 1)
                             : (const void *)(half + 1);
}

static long double squares(ndp_dtype type, int64_t n) {
    long double sum = 0;
    for (int64_t i = 1; i <= n; i++) {
        long double x = type == NDP_F32   ? (long double)single[i]
                        : type == NDP_F64 ? (long double)wide[i]
                                          : (long double)ndp_bf16_to_f32(half[i]);
        sum += x * x;
    }
    return sum;
}

static void sums_are_exact_to_fp64(void **state) {
    (void)state;
    static const ndp_dtype types[] = {NDP_F32, NDP_F64, NDP_BF16};
    static const int64_t sizes[] = {0, 1, 2, 15, 16, 17, 1023, 16383, 16384, 16385, 99991, MOST - 1};
    fill();
    for (int k = 0; k < NDP_COUNT(types) * NDP_COUNT(sizes); k++) {
        ndp_dtype type = types[k % NDP_COUNT(types)];
        int64_t n = sizes[k / NDP_COUNT(types)];
        double expected = (double)squares(type, n), one = ndp_sum_squares(start(type), type, n, 1);
        if (fabs(one - expected) > 1e-13 * expected)
            fail_msg("type %d, n %lld: %.17g, expected %.17g", type, (long long)n, one, expected);
        for (int threads = 2; threads < 6; threads++)
            assert_true(ndp_sum_squares(start(type), type, n, threads) == one);
    }
}

/* fp32 and bf16 sums are the same on every machine. */
static void instruction_sets_agree(void **state) {
    (void)state;
    fill();
    setenv("NDP_ISA", "generic", 1);
    double f32 = ndp_sum_squares(single, NDP_F32, MOST, 2), bf16 = ndp_sum_squares(half, NDP_BF16, MOST, 2);
    unsetenv("NDP_ISA");
    assert_true(ndp_sum_squares(single, NDP_F32, MOST, 2) == f32);
    assert_true(ndp_sum_squares(half, NDP_BF16, MOST, 2) == bf16);
}

/* Squares of large floats overflow fp32, not the sum; a broken value anywhere shows. */
static void broken_values_come_through(void **state) {
    (void)state;
    fill();
    static const int64_t places[] = {0, 15, 16, 200000, MOST - 1};
    for (int i = 0; i < NDP_COUNT(places); i++) {
        float *x = single + places[i], before = *x;
        *x = 3e38f;
        assert_true(isfinite(ndp_sum_squares(single, NDP_F32, MOST, 2)));
        *x = -INFINITY;
        assert_true(ndp_sum_squares(single, NDP_F32, MOST, 2) == INFINITY);
        *x = NAN;
        assert_true(isnan(ndp_sum_squares(single, NDP_F32, MOST, 2)));
        *x = before;
        half[places[i]] = 0x7fc0;
        assert_true(isnan(ndp_sum_squares(half, NDP_BF16, MOST, 2)));
        half[places[i]] = ndp_f32_to_bf16(before);
    }
}

static void factor_shrinks_only(void **state) {
    (void)state;
    assert_true(ndp_clip_factor(4, 1) == 0.25);
    assert_true(ndp_clip_factor(1, 1) == 1);
    assert_true(ndp_clip_factor(0.5, 1) == 1);
    assert_true(ndp_clip_factor(4, 0) == 1); /* no clipping */
    assert_true(ndp_clip_factor(0, 1) == 1);
    assert_true(ndp_clip_factor(INFINITY, 1) == 0);
    assert_true(isnan(ndp_clip_factor(NAN, 1)));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_exact_to_fp64), cmocka_unit_test(instruction_sets_agree),
        cmocka_unit_test(broken_values_come_through), cmocka_unit_test(factor_shrinks_only)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
