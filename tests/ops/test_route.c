/* The ops of a mixture of experts that route and move rows, by hand: which experts a row gets, in which order rows
 * stand, and what is left of rows that are routed nowhere. On `cpu`, or NDP_TEST_DEVICE, and on ref. */
#include "expert_operands.h"

/* Outputs of an op on a device; `in` stays. */
static void run_on(const ndp_device *d, const ndp_op *op, const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    memset(out, 0, NDP_OP_MAX_OUT * sizeof *out);
    make_outputs(op, attr, in, out, ~0u);
    run_op(op, attr, in, out, d, 2);
}

static ndp_view rows_of(ndp_dtype t, int64_t rows, int64_t cols, const double *x) {
    ndp_view v = matrix(t, rows, cols);
    for (int64_t i = 0; i < rows * cols; i++)
        ndp_view_set(&v, i / cols, i % cols, x[i]);
    return v;
}

/* ---- route ---- */

enum { EXPERTS = 4, CHOICES = 3 };

/* The lower one of equal experts is first; padding goes nowhere, whatever its logits are. */
static void choices_by_hand(void **state) {
    (void)state;
    static const double logits[][EXPERTS] = {{1, 3, 3, 2}, {0, 0, 0, 0}, {NAN, 5, 1, 2}, {-1, -2, -3, 7}};
    static const double samples[] = {0, 3, -1, 0},
                        expected[][CHOICES] = {{1, 2, 3}, {0, 1, 2}, {-1, -1, -1}, {3, 0, 1}};
    for (int i = 0; i < 2 * DEVICES; i++) {
        ndp_op_attr attr = {.choices = CHOICES, .renormalise = i / DEVICES};
        ndp_view in[] = {rows_of(NDP_F32, 4, EXPERTS, logits[0]), rows_of(NDP_I32, 4, 1, samples), {0}, {0}};
        ndp_view out[NDP_OP_MAX_OUT];
        run_on(device_at(i % DEVICES), &ndp_op_route, &attr, in, out);
        for (int t = 0; t < 4; t++) {
            double all = 0, chosen = 0;
            for (int e = 0; e < EXPERTS; e++)
                all += exp(logits[t][e]);
            for (int j = 0; samples[t] >= 0 && j < CHOICES; j++)
                chosen += exp(logits[t][(int)expected[t][j]]);
            for (int j = 0; j < CHOICES; j++) {
                double w =
                    samples[t] >= 0 ? exp(logits[t][(int)expected[t][j]]) / (attr.renormalise ? chosen : all) : 0;
                assert_true(ndp_view_get(&out[0], t, j) == expected[t][j]);
                assert_true(fabs(ndp_view_get(&out[1], t, j) - w) < 1e-6);
            }
        }
        free_matrices(in, 2);
        free_matrices(out, 3);
    }
}

/* Sigmoid routers: the bias chooses and does not weigh; the best two of a group, or its best, open it; what is chosen
 * is the same on every device. Logits of 0 have a score of 1 / 2. */
static void scores_by_hand(void **state) {
    (void)state;
    enum { MANY = 6 };
    static const double logits[] = {0, 0, 0, 0, 1, 0}, bias[] = {0.3, 0.1, 0, 0.35, 0, 0};
    static const struct {
        int groups, open, best, first, second;
    } cases[] = {{0, 0, 0, 3, 0}, {3, 1, 2, 0, 1}, {3, 1, 1, 3, 2}, {2, 1, 2, 3, 4}, {3, 3, 2, 3, 0}};
    for (int i = 0; i < 2 * NDP_COUNT(cases) * DEVICES; i++) {
        int n = i / DEVICES / 2;
        bool sum = i / DEVICES % 2;
        ndp_op_attr attr = {.choices = 2,
                            .sigmoid = true,
                            .renormalise = sum,
                            .scale = 3,
                            .groups = cases[n].groups,
                            .open_groups = cases[n].open,
                            .group_best = cases[n].best};
        ndp_view in[] = {rows_of(NDP_F32, 1, MANY, logits), {0}, {0}, rows_of(NDP_F32, 1, MANY, bias)};
        ndp_view out[NDP_OP_MAX_OUT];
        run_on(device_at(i % DEVICES), &ndp_op_route, &attr, in, out);
        int chosen[] = {cases[n].first, cases[n].second};
        double score[2], all = 0;
        for (int j = 0; j < 2; j++)
            all += score[j] = 1 / (1 + exp(-logits[chosen[j]]));
        for (int j = 0; j < 2; j++) {
            assert_true(ndp_view_get(&out[0], 0, j) == chosen[j]);
            assert_true(fabs(ndp_view_get(&out[1], 0, j) - 3 * score[j] / (sum ? all : 1)) < 1e-6);
            double key = score[j] + bias[chosen[j]]; /* what was chosen by */
            assert_true(fabs(ndp_view_get(&out[2], 0, chosen[j]) - key) < 1e-6);
        }
        assert_true(fabs(ndp_view_get(&out[2], 0, 5) - 0.5) < 1e-6); /* also of a group that is not open */
        free_matrices(in, 4);
        free_matrices(out, 3);
    }
}

/* Groups of a softmax are open by their best expert; weights are parts of the softmax over all, times the scale. */
static void groups_of_a_softmax(void **state) {
    (void)state;
    enum { MANY = 6 };
    static const double logits[] = {2, 2.2, 3, -1, -2, 2.5};
    static const int chosen[] = {2, 5, 3}; /* 0 and 1 are closed, 4 is smaller */
    ndp_op_attr attr = {.choices = 3, .scale = 3, .groups = 3, .open_groups = 2, .group_best = 1};
    double all = 0;
    for (int e = 0; e < MANY; e++)
        all += exp(logits[e]);
    for (int i = 0; i < DEVICES; i++) {
        ndp_view in[] = {rows_of(NDP_F32, 1, MANY, logits), {0}, {0}, {0}}, out[NDP_OP_MAX_OUT];
        run_on(device_at(i), &ndp_op_route, &attr, in, out);
        for (int j = 0; j < 3; j++) {
            assert_true(ndp_view_get(&out[0], 0, j) == chosen[j]);
            assert_true(fabs(ndp_view_get(&out[1], 0, j) - 3 * exp(logits[chosen[j]]) / all) < 1e-6);
        }
        free_matrices(in, 4);
        free_matrices(out, 3);
    }
}

/* What is not a number is chosen last, and is seen in the weights; the choices are experts, each once. */
static void logits_that_are_no_numbers(void **state) {
    (void)state;
    enum { ROWS = 40, MANY = 37 };
    for (int i = 0; i < 4 * DEVICES; i++) {
        ndp_op_attr attr = {.choices = (int[]){1, 5, 36, MANY}[i / DEVICES], .renormalise = i / DEVICES % 2};
        ndp_view in[4] = {random_matrix(NDP_F32, ROWS, MANY, 3)}, out[NDP_OP_MAX_OUT];
        for (int t = 1; t < ROWS; t++) /* row 0 is whole, the last ones have nothing else */
            for (int e = 0; e < MANY; e++)
                if ((e * 7 + t) % MANY < t) /* e = 21 first, then 5 */
                    ndp_view_set(&in[0], t, e, e % 5 == 1 ? -INFINITY : NAN);
        run_on(device_at(i % DEVICES), &ndp_op_route, &attr, in, out);
        for (int t = 0; t < ROWS; t++) {
            bool seen[MANY] = {false}, numbers_end = false;
            for (int j = 0; j < attr.choices; j++) {
                int e = (int)ndp_view_get(&out[0], t, j);
                assert_true(e >= 0 && e < MANY && !seen[e]);
                seen[e] = true;
                bool number = isfinite(ndp_view_get(&in[0], t, e));
                assert_false(number && numbers_end);
                numbers_end |= !number;
                assert_true(isnan(ndp_view_get(&out[1], t, j)) == (t > 1)); /* row 1 has one -inf */
            }
        }
        free_matrices(in, 1);
        free_matrices(out, 3);
    }
}

/* Experts that are given, far below the largest logit: weights and gradients are those of their own softmax, or nearly
 * nothing of that of all; the logits are written as they are. */
static void choices_that_are_given(void **state) {
    (void)state;
    static const double logits[][EXPERTS] = {{0, 1, 2, 700}, {5, 6, 7, 8}, {1, 2, 3, 4}};
    static const double given[] = {1, 0, 3, 2, -1, -1}, dw[] = {1, 0, 1, 0, 1, 0};
    const double p = 1 / (1 + exp(-1)), q[] = {0, p, p * (1 - p)};
    for (int i = 0; i < 2 * DEVICES; i++) {
        ndp_op_attr attr = {.choices = 2, .renormalise = i / DEVICES};
        ndp_view in[] = {rows_of(NDP_F32, 3, EXPERTS, logits[0]), {0}, rows_of(NDP_I32, 3, 2, given), {0}};
        ndp_view out[NDP_OP_MAX_OUT], dx[NDP_OP_MAX_OUT];
        run_on(device_at(i % DEVICES), &ndp_op_route, &attr, in, out);
        for (int t = 0; t < 3; t++)
            for (int e = 0; e < EXPERTS; e++)
                assert_true(ndp_view_get(&out[2], t, e) == logits[t][e]);
        for (int j = 0; j < 6; j++)
            assert_true(ndp_view_get(&out[0], j / 2, j % 2) == given[j]);
        ndp_view back[] = {rows_of(NDP_F32, 3, 2, dw), in[0], out[0], {0}};
        run_on(device_at(i % DEVICES), &ndp_op_route_dx, &attr, back, dx);
        assert_true(fabs(ndp_view_get(&out[1], 0, 0) - (attr.renormalise ? q[1] : 0)) < 1e-6);
        assert_true(fabs(ndp_view_get(&dx[0], 0, 1) - (attr.renormalise ? q[2] : 0)) < 1e-6);
        assert_true(fabs(ndp_view_get(&dx[0], 0, 0) + (attr.renormalise ? q[2] : 0)) < 1e-6);
        for (int e = 0; e < EXPERTS; e++)
            assert_true(ndp_view_get(&dx[0], 2, e) == 0 && (e < 2 || ndp_view_get(&dx[0], 0, e) == 0));
        assert_true(ndp_view_get(&out[1], 2, 0) == 0 && ndp_view_get(&out[1], 2, 1) == 0);
        free_matrices(in, 3);
        free_matrices(out, 3);
        free_matrices(back, 1);
        free_matrices(dx, 1);
    }
}

/* Rows without a choice have no gradient, even where their logits are not numbers. */
static void padding_has_no_gradient(void **state) {
    (void)state;
    static const double none[] = {-1, -1}, dw[] = {3, NAN}, logits[] = {NAN, 1, INFINITY}, acc[] = {5, 6, 7};
    for (int i = 0; i < 4 * DEVICES; i++) {
        ndp_op_attr attr = {.renormalise = i / DEVICES % 2};
        bool adds = i / DEVICES / 2;
        ndp_view in[] = {rows_of(NDP_F32, 1, 2, dw), rows_of(NDP_F32, 1, 3, logits), rows_of(NDP_I32, 1, 2, none),
                         adds ? rows_of(NDP_F32, 1, 3, acc) : (ndp_view){0}};
        ndp_view out[NDP_OP_MAX_OUT];
        run_on(device_at(i % DEVICES), &ndp_op_route_dx, &attr, in, out);
        for (int e = 0; e < 3; e++)
            assert_true(ndp_view_get(&out[0], 0, e) == (adds ? acc[e] : 0));
        free_matrices(in, 4);
        free_matrices(out, 1);
    }
}

/* ---- route_order ---- */

/* Rows stand by expert, then by number; order and places are each other's inverse; offsets say where experts begin. */
static void check_order(const ndp_view *choices, int64_t experts, const ndp_view *out) {
    const ndp_view *order = &out[0], *places = &out[1], *offsets = &out[2];
    int64_t k = choices->cols, n = 0, counts[64] = {0};
    for (int64_t i = 0; i < choices->rows * k; i++) {
        int64_t e = (int64_t)ndp_view_get(choices, i / k, i % k), place = (int64_t)ndp_view_get(places, i / k, i % k);
        assert_int_equal(place < 0, e < 0);
        if (e < 0)
            continue;
        assert_int_equal(ndp_view_get(order, place, 0), i);
        assert_int_equal(place, (int64_t)ndp_view_get(offsets, e, 0) + counts[e]++);
        n++;
    }
    assert_int_equal(ndp_view_get(offsets, 0, 0), 0);
    assert_int_equal(ndp_view_get(offsets, experts, 0), n);
    for (int64_t e = 0; e < experts; e++)
        assert_int_equal(ndp_view_get(offsets, e + 1, 0) - ndp_view_get(offsets, e, 0), counts[e]);
    for (int64_t i = n; i < order->rows; i++)
        assert_int_equal((int64_t)ndp_view_get(order, i, 0), -1);
}

/* All to one expert, none to another, all nowhere, and one row. */
static void orders_by_hand(void **state) {
    (void)state;
    static const struct {
        int64_t rows, experts, k, lowest, highest;
    } cases[] = {{1, 1, 1, 0, 1},       {1, 64, 3, 9, 10}, {300, 7, 1, 3, 4},  {300, 7, 1, -1, 0},
                 {2000, 64, 2, -1, 40}, {77, 3, 5, -1, 3}, {5000, 2, 1, 0, 2}, {1030, 33, 4, 20, 33}};
    for (int i = 0; i < NDP_COUNT(cases) * DEVICES; i++) {
        int64_t rows = cases[i / DEVICES].rows, k = cases[i / DEVICES].k;
        ndp_op_attr attr = {.experts = (int)cases[i / DEVICES].experts};
        ndp_view in[] = {matrix(NDP_I32, rows, k)}, out[NDP_OP_MAX_OUT];
        ndp_view flat = random_ints(rows * k, cases[i / DEVICES].lowest, cases[i / DEVICES].highest, 5);
        for (int64_t j = 0; j < rows * k; j++)
            ndp_view_set(&in[0], j / k, j % k, ndp_view_get(&flat, j, 0));
        run_on(device_at(i % DEVICES), &ndp_op_route_order, &attr, in, out);
        check_order(&in[0], attr.experts, out);
        free_matrices(&flat, 1);
        free_matrices(in, 1);
        free_matrices(out, 3);
    }
}

/* ---- route_exchange ---- */

static int int_at(const ndp_view *v, int64_t row, int64_t col) { return (int)ndp_view_get(v, row, col); }

/* How many choices of the row are experts of that rank: those are cut evenly, the first ones down. */
static int choices_of(const ndp_view *choices, int64_t row, const ndp_op_attr *a, int rank) {
    int n = 0;
    for (int64_t j = 0; j < choices->cols; j++) {
        int e = int_at(choices, row, j);
        n += e >= a->experts * rank / a->ranks && e < a->experts * (rank + 1) / a->ranks;
    }
    return n;
}

/* The round in which the row goes to that rank; -1: it does not. */
static int64_t round_of(const ndp_view *choices, int64_t row, const ndp_op_attr *a, int rank) {
    int64_t before = 0;
    for (int64_t r = 0; r < row; r++)
        before += choices_of(choices, r, a, rank);
    return choices_of(choices, row, a, rank) == 0 ? -1
           : a->capacity == 0                     ? 0
                                                  : before / (a->capacity - choices->cols + 1);
}

/* Each row goes once to each rank that has a choice of it, by rank and then by number; order and places say the same.
 */
static int64_t check_going(const ndp_view *choices, const ndp_op_attr *a, int64_t round, const ndp_view *out) {
    const ndp_view *order = &out[0], *places = &out[1], *rows = &out[2];
    int64_t t = places->rows, first = a->first * t, at = 0, placed = 0;
    for (int q = 0; q < a->ranks; q++) {
        int64_t before = at;
        for (int64_t r = 0; r < t; r++) {
            if (round_of(choices, first + r, a, q) != round)
                continue;
            int n = int_at(order, at, 0);
            assert_int_equal(n / places->cols, r);
            assert_int_equal(int_at(places, r, n % places->cols), at++);
        }
        assert_int_equal(int_at(rows, a->first, q), at - before);
    }
    for (int64_t i = 0; i < t * places->cols; i++)
        placed += int_at(places, i / places->cols, i % places->cols) >= 0;
    assert_int_equal(placed, at);
    for (int64_t i = at; i < order->rows; i++)
        assert_int_equal(int_at(order, i, 0), -1);
    return at;
}

/* Those of other ranks come in their order, with the choices that are this rank's, for which there is capacity. */
static void check_coming(const ndp_view *choices, const ndp_op_attr *a, int64_t round, const ndp_view *out) {
    const ndp_view *here = &out[3];
    int64_t at = 0, came = 0;
    for (int64_t r = 0; r < choices->rows; r++) {
        if (round_of(choices, r, a, (int)a->first) != round)
            continue;
        for (int64_t j = 0; j < choices->cols; j++) {
            int e = int_at(choices, r, j);
            bool own = e >= a->experts * a->first / a->ranks && e < a->experts * (a->first + 1) / a->ranks;
            assert_int_equal(int_at(here, at, j), own ? e : -1);
            came += own;
        }
        at++;
    }
    assert_true(at <= here->rows && (a->capacity == 0 || came <= a->capacity));
    for (; at < here->rows; at++)
        for (int64_t j = 0; j < choices->cols; j++)
            assert_int_equal(int_at(here, at, j), -1);
}

/* All rounds of one rank; returns how many rows it hands over, and how many rounds there are. */
static int64_t check_rounds(const ndp_device *d, const ndp_view *choices, const ndp_op_attr *attr, int64_t *rounds) {
    int64_t going = 0;
    *rounds = 1;
    for (int64_t round = 0; round < *rounds; round++) {
        ndp_view out[NDP_OP_MAX_OUT], in[] = {*choices, round ? matrix(NDP_I64, 1, 1) : (ndp_view){0}};
        if (round)
            *(int64_t *)in[1].data = round - 1;
        run_on(d, &ndp_op_route_exchange, attr, in, out);
        going += check_going(choices, attr, round, out);
        check_coming(choices, attr, round, out);
        *rounds = 1 + *(const int64_t *)out[4].data;
        free_matrices(out, 5);
        free_matrices(&in[1], 1);
    }
    return going;
}

/* Numbers of experts that ranks divide and do not; all rows to one rank, some nowhere, and no row at all. In one round,
 * with the least capacity, and with some: in all rounds together each row goes to each of its ranks once. */
static void exchanges_by_hand(void **state) {
    (void)state;
    static const struct {
        int64_t rows, experts, ranks, k, lowest, highest;
    } cases[] = {{1, 2, 2, 1, 0, 2},    {40, 8, 4, 3, -1, 8},  {33, 5, 3, 5, -1, 5}, {70, 7, 7, 2, 0, 7},
                 {130, 9, 4, 4, -1, 4}, {50, 16, 2, 2, 9, 10}, {20, 6, 3, 2, -1, 0}};
    for (int i = 0; i < NDP_COUNT(cases) * DEVICES * 3; i++) {
        int n = i / DEVICES / 3, way = i / DEVICES % 3;
        int64_t rows = cases[n].rows * cases[n].ranks, k = cases[n].k, rounds = 0, first_rounds = 0, wanted = 0,
                going = 0;
        ndp_view choices = matrix(NDP_I32, rows, k), flat = random_ints(rows * k, cases[n].lowest, cases[n].highest, 7);
        for (int64_t j = 0; j < rows * k; j++)
            ndp_view_set(&choices, j / k, j % k, ndp_view_get(&flat, j, 0));
        for (int rank = 0; rank < cases[n].ranks; rank++) {
            ndp_op_attr attr = {.experts = (int)cases[n].experts,
                                .ranks = (int)cases[n].ranks,
                                .first = rank,
                                .capacity = way == 0   ? 0
                                            : way == 1 ? k + 11
                                                       : k * cases[n].rows + 3};
            going += check_rounds(device_at(i % DEVICES), &choices, &attr, &rounds);
            for (int64_t r = 0; r < rows; r++)
                wanted += choices_of(&choices, r, &attr, rank) > 0;
            assert_true(rank == 0 || rounds == first_rounds);
            first_rounds = rounds;
        }
        assert_int_equal(going, wanted);
        assert_true(way == 1 || n == 5 || way == 2 || rounds == 1);
        assert_true(n != 5 || way == 0 || rounds > 1);
        free_matrices(&flat, 1);
        free_matrices(&choices, 1);
    }
}

/* ---- rows ---- */

/* To the experts and back: a row of two choices is twice itself, or itself times the sum of its weights; in fp32 of
 * numbers that are exact in it. Padding comes back as 0. */
static void there_and_back(void **state) {
    (void)state;
    for (int i = 0; i < 2 * DEVICES; i++) {
        const ndp_device *d = device_at(i % DEVICES);
        bool weighed = i / DEVICES;
        some_order o = order_of(some_choices(23, 5, 2, false), 5);
        ndp_view x = tied(23, 11, 1), w = weighed ? tied(23, 2, 2) : (ndp_view){0}, out[NDP_OP_MAX_OUT];
        run_on(d, &ndp_op_take_rows, &(ndp_op_attr){0}, (ndp_view[]){x, o.order, o.places, {0}}, out);
        ndp_view y = out[0];
        for (int64_t n = 0; n < 46; n++)
            for (int64_t c = 0; c < 11; c++) {
                int64_t from = (int64_t)ndp_view_get(&o.order, n, 0);
                assert_true(ndp_view_get(&y, n, c) == (from < 0 ? 0 : ndp_view_get(&x, from / 2, c)));
            }
        run_on(d, &ndp_op_give_rows, &(ndp_op_attr){0}, (ndp_view[]){y, o.order, o.places, w, {0}}, out);
        for (int64_t t = 0; t < 23; t++)
            for (int64_t c = 0; c < 11; c++) {
                double by = weighed ? ndp_view_get(&w, t, 0) + ndp_view_get(&w, t, 1) : 2;
                assert_true(ndp_view_get(&out[0], t, c) == (t % 5 == 3 ? 0 : by * ndp_view_get(&x, t, c)));
            }
        free_matrices((ndp_view[]){x, w, y, o.order, o.places, out[0]}, 6);
    }
}

/* A sum of bf16 rows, and what it is added to, is rounded once. */
static void sums_are_rounded_once(void **state) {
    (void)state;
    for (int d = 0; d < DEVICES; d++) {
        some_order o = order_of(some_choices(9, 4, 3, false), 4);
        ndp_view y = random_matrix(NDP_BF16, 27, 21, 1), w = random_matrix(NDP_F32, 9, 3, 2),
                 acc = random_matrix(NDP_BF16, 9, 21, 3);
        ndp_view out[NDP_OP_MAX_OUT], once = matrix(NDP_BF16, 1, 1);
        run_on(device_at(d), &ndp_op_give_rows, &(ndp_op_attr){0}, (ndp_view[]){y, o.order, o.places, w, acc}, out);
        for (int64_t t = 0; t < 9; t++)
            for (int64_t c = 0; c < 21; c++) {
                double sum = ndp_view_get(&acc, t, c), size = fabs(sum);
                for (int64_t j = 0; t % 5 != 3 && j < 3; j++) {
                    int64_t place = (int64_t)ndp_view_get(&o.places, t, j);
                    sum += ndp_view_get(&w, t, j) * ndp_view_get(&y, place, c);
                    size += fabs(ndp_view_get(&w, t, j) * ndp_view_get(&y, place, c));
                }
                ndp_view_set(&once, 0, 0, sum);
                double nearest =
                    fabs(ndp_view_get(&once, 0, 0) - sum); /* fp32 sums may be on the other side of a tie */
                assert_true(fabs(ndp_view_get(&out[0], t, c) - sum) <= nearest + 1e-6 * size);
            }
        free_matrices((ndp_view[]){y, w, acc, out[0], once, o.order, o.places}, 7);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(choices_by_hand),
        cmocka_unit_test(scores_by_hand),
        cmocka_unit_test(groups_of_a_softmax),
        cmocka_unit_test(choices_that_are_given),
        cmocka_unit_test(logits_that_are_no_numbers),
        cmocka_unit_test(padding_has_no_gradient),
        cmocka_unit_test(orders_by_hand),
        cmocka_unit_test(exchanges_by_hand),
        cmocka_unit_test(there_and_back),
        cmocka_unit_test(sums_are_rounded_once),
    };
    return end_of_ops(cmocka_run_group_tests(tests, NULL, NULL));
}
