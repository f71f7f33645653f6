/* Which elements dropout drops, on ref and on `cpu` or NDP_TEST_DEVICE: those of the formula, however rows and columns
 * are cut; the share that was asked for; other ones for another key, unit or tag. */
#include "base/rng.h"
#include "op_test.h"

enum { ROWS = 37, COLS = 203, FIRST = 6, UNIT = 11, TAG = 3, SECOND_KEY_WORD = 0x9E3779B9 };

static ndp_view keys(int64_t rows) { return random_ints(rows, INT32_MIN, INT32_MAX, 5); }

static ndp_view unit_of(int32_t n) {
    ndp_view v = matrix(NDP_I32, 1, 1);
    ndp_view_set(&v, 0, 0, n);
    return v;
}

/* Ones, so that the result says what was kept. */
static ndp_view ones(ndp_dtype type, int64_t rows, int64_t cols) {
    ndp_view v = matrix(type, rows, cols);
    for (int64_t t = 0; t < rows; t++)
        for (int64_t c = 0; c < cols; c++)
            ndp_view_set(&v, t, c, 1);
    return v;
}

static ndp_view dropped(const ndp_op_attr *attr, ndp_view x, const ndp_view *key, int32_t unit,
                        const ndp_device *device) {
    ndp_view in[NDP_OP_MAX_IN] = {x, *key, unit_of(unit)}, out[NDP_OP_MAX_OUT] = {{0}};
    make_outputs(&ndp_op_dropout, attr, in, out, 1);
    run_op(&ndp_op_dropout, attr, in, out, device, 2);
    free_matrices(&in[0], 1);
    free_matrices(&in[2], 1);
    return out[0];
}

/* The same generator, addressed by another interface: ndp_rng_words(key, stream, index). */
static bool is_dropped(int32_t key, int32_t unit, int tag, int64_t column, double drop) {
    uint32_t words[4];
    ndp_rng_words((uint64_t)SECOND_KEY_WORD << 32 | (uint32_t)key, (uint32_t)unit,
                  (uint64_t)tag << 32 | (uint64_t)(column / 4), words);
    return words[column % 4] < drop * 0x1p32;
}

static void the_formula_on_every_device(void **state) {
    (void)state;
    static const double shares[] = {0, 0.05, 0.5, 0.9};
    for (int i = 0; i < 2 * NDP_COUNT(shares); i++)
        for (int d = 0; d < DEVICES; d++) {
            double drop = shares[i / 2];
            ndp_op_attr attr = {.drop = drop, .first = FIRST + i, .tag = TAG};
            ndp_view key = keys(ROWS);
            ndp_view y = dropped(&attr, ones(i % 2 ? NDP_BF16 : NDP_F32, ROWS, COLS), &key, UNIT, device_at(d));
            ndp_view kept = matrix(y.dtype, 1, 1);
            ndp_view_set(&kept, 0, 0, 1 / (1 - drop));
            for (int64_t t = 0; t < ROWS; t++)
                for (int64_t c = 0; c < COLS; c++) {
                    bool zero = is_dropped((int32_t)ndp_view_get(&key, t, 0), UNIT, TAG, attr.first + c, drop);
                    if (ndp_view_get(&y, t, c) != (zero ? 0 : ndp_view_get(&kept, 0, 0)))
                        fail_msg("%s, share %g: (%lld, %lld) is %g", device_at(d)->name, drop, (long long)t,
                                 (long long)c, ndp_view_get(&y, t, c));
                }
            free_matrices(&y, 1);
            free_matrices(&key, 1);
            free_matrices(&kept, 1);
        }
}

/* Pieces of the columns, and of the rows with their keys: each has the bits of the whole. */
static void cuts_change_nothing(void **state) {
    (void)state;
    static const int64_t cuts[] = {0, 1, 7, 8, 40, 137, COLS};
    for (int d = 0; d < 2 * DEVICES; d++) {
        ndp_dtype type = d % 2 ? NDP_BF16 : NDP_F32;
        const ndp_device *device = device_at(d / 2);
        ndp_op_attr attr = {.drop = 0.3, .first = FIRST, .tag = TAG};
        ndp_view key = keys(ROWS), whole = dropped(&attr, random_matrix(type, ROWS, COLS, 9), &key, UNIT, device);
        for (int i = 0; i + 1 < NDP_COUNT(cuts); i++)
            for (int64_t row = 0, rows = 20; row < ROWS; row += rows, rows = ROWS - 20) {
                ndp_view all = random_matrix(type, ROWS, COLS, 9), part_key = key, part = all;
                part.rows = part_key.rows = rows, part.cols = cuts[i + 1] - cuts[i];
                part.data = (char *)all.data + (size_t)(row * all.ld + cuts[i]) * ndp_dtype_size(type);
                part_key.data = (int32_t *)key.data + row * key.ld;
                attr.first = FIRST + cuts[i];
                ndp_view y = dropped(&attr, copy_as(type, &part), &part_key, UNIT, device);
                for (int64_t t = 0; t < y.rows; t++)
                    for (int64_t c = 0; c < y.cols; c++)
                        assert_true(ndp_view_get(&y, t, c) == ndp_view_get(&whole, row + t, cuts[i] + c));
                free_matrices(&y, 1);
                free_matrices(&all, 1);
            }
        free_matrices(&whole, 1);
        free_matrices(&key, 1);
    }
}

/* Of n elements, within five standard deviations. */
static void is_share(double count, double n, double share, const char *what) {
    if (fabs(count - n * share) > 5 * sqrt(n * share * (1 - share)))
        fail_msg("%s: %g of %g, expected a share of %g", what, count, n, share);
}

static void the_share_that_was_asked_for(void **state) {
    (void)state;
    static const double shares[] = {0.01, 0.1, 0.25, 0.75};
    for (int i = 0; i < NDP_COUNT(shares); i++) {
        ndp_op_attr attr = {.drop = shares[i]};
        ndp_view key = keys(ROWS), y = dropped(&attr, ones(NDP_F32, ROWS, 5 * COLS), &key, 0, tested());
        double zeros = 0;
        for (int64_t t = 0; t < ROWS; t++)
            for (int64_t c = 0; c < y.cols; c++)
                zeros += ndp_view_get(&y, t, c) == 0;
        is_share(zeros, ROWS * 5 * COLS, shares[i], "dropped");
        free_matrices(&y, 1);
        free_matrices(&key, 1);
    }
}

/* Masks of other keys, units and tags agree as often as independent ones of a half do; the same ones, everywhere. */
static void others_are_independent(void **state) {
    (void)state;
    for (int other = 0; other < 4; other++) {
        ndp_op_attr attr = {.drop = 0.5, .tag = TAG};
        ndp_view key = keys(ROWS), a = dropped(&attr, ones(NDP_F32, ROWS, COLS), &key, UNIT, tested());
        attr.tag += other == 1;
        for (int64_t t = 0; t < ROWS; t++)
            ndp_view_set(&key, t, 0, ndp_view_get(&key, t, 0) + (other == 3));
        ndp_view b = dropped(&attr, ones(NDP_F32, ROWS, COLS), &key, UNIT + (other == 2), tested());
        double same = 0;
        for (int64_t t = 0; t < ROWS; t++)
            for (int64_t c = 0; c < COLS; c++)
                same += ndp_view_get(&a, t, c) == ndp_view_get(&b, t, c);
        if (other == 0)
            assert_true(same == ROWS * COLS);
        else
            is_share(same, ROWS * COLS, 0.5, (const char *[]){"", "tag", "unit", "key"}[other]);
        free_matrices(&a, 1);
        free_matrices(&b, 1);
        free_matrices(&key, 1);
    }
}

/* What is dropped is 0, whatever it was. */
static void infinities_are_dropped(void **state) {
    (void)state;
    for (int d = 0; d < DEVICES; d++) {
        ndp_op_attr attr = {.drop = 0.5};
        ndp_view key = keys(ROWS), x = ones(NDP_F32, ROWS, COLS);
        for (int64_t t = 0; t < ROWS; t++)
            for (int64_t c = 0; c < COLS; c++)
                ndp_view_set(&x, t, c, INFINITY);
        ndp_view y = dropped(&attr, x, &key, UNIT, device_at(d));
        for (int64_t t = 0; t < ROWS; t++)
            for (int64_t c = 0; c < COLS; c++)
                assert_true(ndp_view_get(&y, t, c) ==
                            (is_dropped((int32_t)ndp_view_get(&key, t, 0), UNIT, 0, c, 0.5) ? 0 : INFINITY));
        free_matrices(&y, 1);
        free_matrices(&key, 1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_formula_on_every_device), cmocka_unit_test(cuts_change_nothing),
        cmocka_unit_test(the_share_that_was_asked_for), cmocka_unit_test(others_are_independent),
        cmocka_unit_test(infinities_are_dropped)};
    return end_of_ops(cmocka_run_group_tests(tests, NULL, NULL));
}
