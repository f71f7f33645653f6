/* Reduction of curves to columns. */
#include "check.h"
#include "report/curve_columns.h"

#include <math.h>

/* Sums over columns. */
static void sums(const ndp_curve_columns *c, int64_t *n, double *x, double *y) {
    *n = 0, *x = 0, *y = 0;
    for (int i = 0; i < c->n; i++) {
        const ndp_curve_column *k = &c->at[i];
        if (k->n == 0)
            continue;
        assert_true(k->least <= k->mean && k->mean <= k->greatest);
        *n += k->n, *x += k->x * (double)k->n, *y += k->mean * (double)k->n;
    }
}

static void few_points_stay_as_they_are(void **state) {
    (void)state;
    ndp_curve_columns c = {0};
    for (int i = 1; i <= 9; i++)
        CHECK_OK(ndp_columns_add(&c, i, i * i));
    int points = 0;
    for (int i = 0; i < c.n; i++)
        if (c.at[i].n) {
            points++;
            assert_int_equal(c.at[i].n, 1);
            assert_true(c.at[i].x == points && c.at[i].mean == points * points);
        }
    assert_int_equal(points, 9);
    ndp_columns_release(&c);
}

/* Every number of points keeps them all, their means, the least and the greatest, in order. */
static void many_points_become_columns(void **state) {
    (void)state;
    static const int counts[] = {599, 600, 601, 1200, 12345, 100000};
    for (int k = 0; k < NDP_COUNT(counts); k++) {
        ndp_curve_columns c = {0};
        double x = 0, y = 0, least = INFINITY, greatest = -INFINITY, sum_x, sum_y, before = -1;
        int64_t n;
        for (int i = 0; i < counts[k]; i++) {
            double v = sin(i * 0.37) * i;
            CHECK_OK(ndp_columns_add(&c, 5e4 + i, v));
            x += 5e4 + i, y += v;
        }
        sums(&c, &n, &sum_x, &sum_y);
        assert_int_equal(n, counts[k]);
        assert_true(fabs(sum_x - x) < 1e-9 * x && fabs(sum_y - y) < 1e-6 * counts[k]);
        for (int i = 0; i < c.n; i++)
            if (c.at[i].n) {
                assert_true(c.at[i].x > before);
                before = c.at[i].x;
                least = fmin(least, c.at[i].least), greatest = fmax(greatest, c.at[i].greatest);
            }
        assert_true(c.n <= NDP_COLUMNS && (counts[k] < 20000 || c.n >= NDP_COLUMNS / 2));
        for (int i = 0; i < counts[k]; i++)
            assert_true(sin(i * 0.37) * i >= least && sin(i * 0.37) * i <= greatest);
        ndp_columns_limit(&c, 100);
        assert_true(c.n <= 100);
        sums(&c, &n, &sum_x, &sum_y);
        assert_int_equal(n, counts[k]);
        ndp_columns_release(&c);
    }
}

static void odd_numbers(void **state) {
    (void)state;
    ndp_curve_columns c = {0};
    static const double odd[] = {NAN, INFINITY, -INFINITY, 1e301};
    for (int i = 0; i < NDP_COUNT(odd); i++) {
        CHECK_OK(ndp_columns_add(&c, 1, odd[i]));
        CHECK_OK(ndp_columns_add(&c, odd[i], 1));
    }
    assert_int_equal(c.n, 0);
    CHECK_OK(ndp_columns_add(&c, 3, -1e299));
    CHECK_OK(ndp_columns_add(&c, 3, 1e299)); /* the same x */
    CHECK_OK(ndp_columns_add(&c, 2, 0));     /* a smaller one */
    assert_int_equal(c.n, 1);
    assert_int_equal(c.at[0].n, 3);
    CHECK_OK(ndp_columns_add(&c, 3.0000001, 5));
    CHECK_OK(ndp_columns_add(&c, 1e299, 5));
    assert_true(c.n <= NDP_COLUMNS && c.at[c.n - 1].n == 1 && c.at[0].n == 4);
    ndp_columns_release(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(few_points_stay_as_they_are),
                                       cmocka_unit_test(many_points_become_columns), cmocka_unit_test(odd_numbers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
