/* Shares: arithmetic of the field, and measures that add up. */
#include "base/rng.h"
#include "check.h"
#include "placement/share.h"

static void field(void **state) {
    (void)state;
    for (uint64_t i = 1; i < 2000; i++) {
        ndp_share a = ndp_share_random(i), b = ndp_share_random(2 * i + 1), c = ndp_share_random(7 * i);
        assert_true(a < NDP_SHARE_PRIME && a > 0);
        assert_int_equal(ndp_share_mul(a, ndp_share_inverse(a)), 1);
        assert_int_equal(ndp_share_sub(ndp_share_add(a, b), b), a);
        assert_int_equal(ndp_share_mul(a, ndp_share_add(b, c)),
                         ndp_share_add(ndp_share_mul(a, b), ndp_share_mul(a, c)));
    }
    assert_int_equal(ndp_share_mul(NDP_SHARE_PRIME - 1, NDP_SHARE_PRIME - 1), 1);
}

/* Ranges that tile a dimension sum to 1, however they are cut; any other set of them does not. */
static void measures(void **state) {
    (void)state;
    for (uint64_t n = 0; n < 500; n++) {
        int64_t total = 3 + (int64_t)ndp_rng_below(1, 1, n, 100);
        int64_t a = 1 + (int64_t)ndp_rng_below(1, 2, n, (uint64_t)total - 2), b = a + (total - a) / 2;
        ndp_dim_key dim = ndp_dim_make(n, 5);
        ndp_share first = ndp_range_share(dim, total, -3, a), middle = ndp_range_share(dim, total, a, b),
                  last = ndp_range_share(dim, total, b, total + 9);
        assert_int_equal(ndp_share_add(ndp_share_add(first, middle), last), 1);
        assert_int_equal(ndp_share_add(first, middle), ndp_range_share(dim, total, 0, b));
        assert_int_not_equal(ndp_share_add(first, last), b > a ? 1 : 0);
        assert_int_not_equal(ndp_share_add(first, first), 1);
        assert_int_not_equal(first, ndp_range_share(ndp_dim_make(n, 6), total, 0, a));
        assert_int_equal(ndp_range_share(dim, total, b, b), 0);
    }
}

static void texts(void **state) {
    (void)state;
    assert_string_equal(ndp_share_text(1).s, "complete");
    assert_string_equal(ndp_share_text(0).s, "nothing");
    assert_string_equal(ndp_share_text(3).s, "3 times all of it");
    assert_string_equal(ndp_share_text(ndp_share_inverse(4)).s, "1/4 of it");
    assert_string_equal(ndp_share_text(ndp_share_random(8)).s, "a part of it");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(field), cmocka_unit_test(measures), cmocka_unit_test(texts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
