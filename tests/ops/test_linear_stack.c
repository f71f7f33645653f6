/* linear_stack and its gradients on `cpu`, or on NDP_TEST_DEVICE, against ref, as test_op_kernels.c does it: groups of
 * all sizes, also of no rows; rows of no group; bits with any number of threads; a stack of one beside linear. */
#include "kernel_case.h"
#include "ops/cpu/cpu_gemm_kernel.h"
#include "ops/linear_stack.h"

/* Where groups begin. 0: one of them has all rows; 1: about even; 2: the first has none, the others more and more, and
 * rows of none follow; 3: all rows are of none. */
enum { WAYS_OF_GROUPS = 4 };
static ndp_view some_offsets(int64_t rows, int64_t groups, int way) {
    ndp_view v = matrix(NDP_I32, groups + 1, 1);
    for (int64_t e = 1; e <= groups; e++)
        ndp_view_set(&v, e, 0,
                     (double)(way == 0   ? rows * (e > groups / 2)
                              : way == 1 ? rows * e / groups
                              : way == 2 ? rows * (e - 1) * e / (groups * groups + 1)
                                         : 0));
    return v;
}

/* Groups of these rows, then of `others` each where there are more, then rows of none. */
static ndp_view offsets_of(const int *rows, int n, int64_t groups, int others) {
    ndp_view v = matrix(NDP_I32, groups + 1, 1);
    for (int64_t e = 0; e < groups; e++)
        ndp_view_set(&v, e + 1, 0, ndp_view_get(&v, e, 0) + (e < n ? rows[e] : others));
    return v;
}

/* A bias of each group, of which a rank adds a part. */
static void check_bias(int64_t t, int64_t m, int64_t groups, int way, int parts) {
    ndp_op_attr attr = {.parts = parts}, adding = {.parts = parts, .accumulate = parts > 1};
    kernel_case bias = {&ndp_op_stack_bias, attr,
                        .in = {some(t, m, 1), some(groups, m, 2), some_offsets(t, groups, way)}};
    kernel_case wide = {&ndp_op_stack_bias, attr, .wide = 1,
                        .in = {some(t, m, 1), some(groups, m, 2), some_offsets(t, groups, way)}};
    kernel_case db = {&ndp_op_stack_bias_db, adding, .in = {some(t, m, 1), some_offsets(t, groups, way)}};
    check_kernel(&bias);
    check_kernel(&wide);
    check_kernel(&db);
}

/* `more`: with an earlier gradient, accumulating, wide. */
static void check_groups(int64_t t, int64_t k, int64_t m, const ndp_view *offsets, int more) {
    ndp_view none = {0};
    int64_t groups = offsets->rows - 1;
    kernel_case forward = {&ndp_op_linear_stack,
                           .in = {some(t, k, 1), some(groups * m, k, 2), copy_as(NDP_I32, offsets)}};
    kernel_case dx = {&ndp_op_linear_stack_dx, .in = {some(t, m, 1), some(groups * m, k, 2), copy_as(NDP_I32, offsets),
                                                      more ? some(t, k, 3) : none}};
    kernel_case dw = {
        &ndp_op_linear_stack_dw, {.accumulate = more}, .in = {some(t, m, 1), some(t, k, 2), copy_as(NDP_I32, offsets)}};
    kernel_case to_fp32 = {&ndp_op_linear_stack,
                           .in = {some(t, k, 1), some(groups * m, k, 2), copy_as(NDP_I32, offsets)}, .asked = 1,
                           .other = 1};
    kernel_case wide = {
        &ndp_op_linear_stack_dx,
        {.wide_grad = true},
        .wide = 8,
        .in = {some(t, m, 1), some(groups * m, k, 2), copy_as(NDP_I32, offsets), more ? some(t, k, 3) : none}};
    check_kernel(&forward);
    check_kernel(&dx);
    check_kernel(&dw);
    check_types(&to_fp32, false, true);
    check_types(&wide, false, true);
}

static void check_stack(int64_t t, int64_t k, int64_t m, int64_t groups, int way, int more) {
    ndp_view offsets = some_offsets(t, groups, way);
    check_groups(t, k, m, &offsets, more);
    free_matrices(&offsets, 1);
}

static void linear_stack_kernels(void **state) {
    (void)state;
    FOR_SIZES(t, m)
    for (int way = 0; way < WAYS_OF_GROUPS; way++) {
        check_stack(t, 33, m, 1 + (t + m + way) % 5, way, (t + way) % 2);
        check_bias(t, m, 1 + (t + m + way) % 5, way, 1 + way % 3);
    }
}

/* More rows and columns than a tile, sums longer than a block; one group of all rows, with many that have none. */
static void linear_stack_kernels_of_many_tiles(void **state) {
    (void)state;
    for (int way = 0; way < (small_sizes() ? 1 : WAYS_OF_GROUPS); way++)
        for (int more = 0; more < 2; more++) {
            check_stack(301, 40, 290, 3, way, more);
            check_bias(301, 290, 3, way, 1 + 3 * more);
            check_stack(70, 601, 19, 40, way, more);
        }
}

/* One group of all rows; groups around a tile's rows, of none, of one row each. Rows of 69 and 133 elements and padding
 * are of whole pieces of 16 bytes, which copies of 16 bytes need; others, those of the cases above, are read by
 * elements. */
static void groups_of_many_sizes(void **state) {
    static const int rows[] = {300, 1, 0, 127, 128, 129, 17, 0}, groups[] = {1, 8, 128};
    (void)state;
    for (int i = 0; i < (small_sizes() ? 1 : 2 * 3); i++) {
        int more = i % 2;
        ndp_view offsets = offsets_of(rows, 8, groups[i / 2], 1);
        int64_t t = (int64_t)ndp_view_get(&offsets, offsets.rows - 1, 0) + 3 * more;
        check_groups(t, more ? 69 : 37, more ? 13 : i < 2 ? 133 : 21, &offsets, more);
        free_matrices(&offsets, 1);
    }
}

/* Rows `to` .. of v, of `type`; each is one of PERIOD rows of `from`, in turn. */
enum { PERIOD = 50 };
static ndp_view in_turn(const ndp_view *from, ndp_dtype type, int64_t rows, int64_t to, int64_t n) {
    ndp_view v = random_matrix(type, rows, from->cols, 9);
    for (int64_t r = 0; r < n; r++)
        for (int64_t c = 0; c < from->cols; c++)
            ndp_view_set(&v, to + r, c, ndp_view_get(from, r % PERIOD, c));
    return v;
}

static bool same_rows(const ndp_view *a, int64_t from, const ndp_view *b, int64_t to, int64_t n) {
    ndp_view x = ndp_rows_of(a, from, n), y = ndp_rows_of(b, to, n);
    return same_bits(&x, &y);
}

/* oneDNN promises less of its products: the sums of a row depend on where it is in them. */
static bool products_are_ours(ndp_dtype t) { return tested() != &ndp_device_cpu || ndp_gemm_kernel_for(t); }

/* A group in the middle of others, wherever it begins; rows of a group, wherever they are in it. */
static void bits_of_equal_rows(void **state) {
    (void)state;
    enum { N = 150, T = 300, K = 69, M = 45, E = 3 };
    const ndp_op *ops[] = {&ndp_op_linear_stack, &ndp_op_linear_stack_dx, &ndp_op_linear_stack_dw};
    for (int i = 0; i < 3 * 2; i++) {
        ndp_dtype type = i / 3 ? NDP_BF16 : NDP_F32;
        ndp_view x = some(PERIOD, i % 3 ? M : K, 1), y = some(PERIOD, K, 2), w = random_matrix(type, E * M, K, 3);
        ndp_view out[2][NDP_OP_MAX_OUT] = {{{0}}};
        for (int at = 0; at < 2; at++) {
            int first = at ? 77 : 0;
            ndp_view in[4] = {in_turn(&x, type, T, first, N),
                              i % 3 < 2 ? copy_as(type, &w) : in_turn(&y, type, T, first, N),
                              offsets_of((int[]){first, N}, 2, E, T - N - first)};
            make_outputs(ops[i % 3], &(ndp_op_attr){0}, in, out[at], 1);
            run_op(ops[i % 3], &(ndp_op_attr){0}, in, out[at], tested(), 2);
            free_matrices(in, 3);
        }
        bool same = i % 3 == 2 ? same_rows(&out[0][0], M, &out[1][0], M, M)
                               : same_rows(&out[0][0], 0, &out[1][0], 77, N) &&
                                     same_rows(&out[0][0], 0, &out[0][0], PERIOD, N - PERIOD);
        if (products_are_ours(type) && !same)
            fail_msg("%s, %s: equal rows of a group have other bits elsewhere", ops[i % 3]->name, ndp_dtype_name(type));
        free_matrices(out[0], 1);
        free_matrices(out[1], 1);
        free_matrices(&x, 1);
        free_matrices(&y, 1);
        free_matrices(&w, 1);
    }
}

/* On `cpu` with any number of threads, and at any place where sums are split. Products of the library by themselves
 * promise less: their tests do not compare bits. */
static void linear_stack_bits(void **state) {
    (void)state;
    enum { K = 40, M = 290, E = 5 };
    const int64_t T = small_sizes() ? 35 : 301;
    const ndp_op *ops[] = {&ndp_op_linear_stack, &ndp_op_linear_stack_dx, &ndp_op_linear_stack_dw};
    for (int i = 0; i < 3 * 2 * 2; i++)
        for (int place = 0; place <= NDP_SPLITS; place++) {
            ndp_dtype type = i / 3 % 2 ? NDP_BF16 : NDP_F32;
            ndp_view x = random_matrix(type, T, i % 3 ? M : K, 1), w = random_matrix(type, E * M, K, 2);
            ndp_view second = i % 3 < 2 ? w : random_matrix(type, T, K, 3), in[4] = {x, second};
            ndp_view out[2][NDP_OP_MAX_OUT] = {{{0}}};
            in[2] = some_offsets(T, E, 1 + i / 6);
            for (int run = 0; run < 2; run++) {
                make_outputs(ops[i % 3], &(ndp_op_attr){0}, in, out[run], 1);
                run_op_split(ops[i % 3], &(ndp_op_attr){0}, in, out[run], tested(), 1 + 2 * run, place);
            }
            if (!same_bits(&out[0][0], &out[1][0]))
                fail_msg("%s, %s, split at %d: another number of threads gives other bits", ops[i % 3]->name,
                         ndp_dtype_name(type), place);
            free_matrices(out[0], 1);
            free_matrices(out[1], 1);
            free_matrices(in, 3);
            if (i % 3 == 2)
                free_matrices(&w, 1);
        }
}

/* A stack of one matrix is a linear. `cpu`: by our own kernels in equal bits. */
static void stack_of_one(void **state) {
    (void)state;
    const int64_t T = 301, K = small_sizes() ? 21 : 1210, M = 290;
    const ndp_op *ops[][2] = {{&ndp_op_linear_stack, &ndp_op_linear},
                              {&ndp_op_linear_stack_dx, &ndp_op_linear_dx},
                              {&ndp_op_linear_stack_dw, &ndp_op_linear_dw}};
    bool equal = tested() == &ndp_device_cpu && ndp_cpu_has_avx512();
    for (int i = 0; i < 6; i++) {
        ndp_dtype type = i / 3 ? NDP_BF16 : NDP_F32;
        ndp_view in[4] = {random_matrix(type, T, i % 3 ? M : K, 1)}, plain[3] = {in[0]};
        ndp_view out[NDP_OP_MAX_OUT] = {{0}}, expected[NDP_OP_MAX_OUT] = {{0}};
        in[1] = plain[1] = random_matrix(type, i % 3 < 2 ? M : T, K, 2);
        in[2] = some_offsets(T, 1, 1);
        make_outputs(ops[i % 3][0], &(ndp_op_attr){0}, in, out, 1);
        make_outputs(ops[i % 3][1], &(ndp_op_attr){0}, plain, expected, 1);
        run_op(ops[i % 3][0], &(ndp_op_attr){0}, in, out, tested(), 2);
        run_op(ops[i % 3][1], &(ndp_op_attr){0}, plain, expected, tested(), 2);
        double far = distance(&out[0], &expected[0]);
        if (equal ? !same_bits(&out[0], &expected[0]) : !(far < (out[0].dtype == NDP_BF16 ? 4e-3 : 1e-6)))
            fail_msg("%s is not %s: off by %g", ops[i % 3][0]->name, ops[i % 3][1]->name, far);
        free_matrices(in, 3);
        free_matrices(out, 1);
        free_matrices(expected, 1);
    }
}

/* Exactly zero where nothing is summed; with an earlier gradient in its place, only that. */
static void empty_groups(void **state) {
    (void)state;
    for (int d = 0; d < DEVICES; d++)
        for (int accumulate = 0; accumulate < 2; accumulate++) {
            ndp_view in[4] = {some(20, 7, 1), some(20, 9, 2), some_offsets(20, 3, 2)}, w = some(21, 9, 3);
            ndp_view dw[NDP_OP_MAX_OUT] = {some(21, 9, 4)}, before = copy_as(NDP_F32, &dw[0]);
            run_op(&ndp_op_linear_stack_dw, &(ndp_op_attr){.accumulate = accumulate}, in, dw, device_at(d), 2);
            for (int64_t i = 0; i < 7 * 9; i++)
                assert_true(ndp_view_get(&dw[0], i / 9, i % 9) ==
                            (accumulate ? ndp_view_get(&before, i / 9, i % 9) : 0));
            ndp_view dx[NDP_OP_MAX_OUT] = {some(20, 9, 5)}, dx_in[4] = {in[0], w, in[2]};
            ndp_view y[NDP_OP_MAX_OUT] = {some(20, 7, 6)}, y_in[4] = {in[1], w, in[2]},
                     dx_before = copy_as(NDP_F32, dx);
            dx_in[3] = accumulate ? dx[0] : (ndp_view){0};
            run_op(&ndp_op_linear_stack_dx, &(ndp_op_attr){0}, dx_in, dx, device_at(d), 2);
            run_op(&ndp_op_linear_stack, &(ndp_op_attr){0}, y_in, y, device_at(d), 2);
            for (int64_t t = (int64_t)ndp_view_get(&in[2], 3, 0); t < 20; t++) {
                for (int64_t c = 0; c < 9; c++)
                    assert_true(ndp_view_get(&dx[0], t, c) == (accumulate ? ndp_view_get(&dx_before, t, c) : 0));
                for (int64_t c = 0; c < 7; c++)
                    assert_true(ndp_view_get(&y[0], t, c) == 0);
            }
            free_matrices(in, 3);
            free_matrices(&w, 1);
            free_matrices(dw, 1);
            free_matrices(&before, 1);
            free_matrices(dx, 1);
            free_matrices(&dx_before, 1);
            free_matrices(y, 1);
        }
}

/* Not the sums of before, at any place; near as they are. */
static void split_sums_are_others(void **state) {
    (void)state;
    enum { T = 130, N = 67 };
    for (int i = 0; i < 2 * 3 * NDP_SPLITS; i++) {
        int place = 1 + i / 6;
        ndp_dtype type = i / 3 % 2 ? NDP_BF16 : NDP_F32;
        ndp_view x = some(T, N, 1), offsets = some_offsets(T, 2, 1);
        kernel_case cases[] = {{&ndp_op_linear_stack, .in = {x, some(66, N, 2), offsets}},
                               {&ndp_op_linear_stack_dx, .in = {x, some(2 * N, 33, 2), offsets}},
                               {&ndp_op_linear_stack_dw, .in = {x, some(T, 33, 2), offsets}}};
        kernel_case *k = &cases[i % 3];
        ndp_view in[2][NDP_OP_MAX_IN], out[2][NDP_OP_MAX_OUT];
        k->asked = ~0u;
        k->other = type == NDP_BF16; /* the sums as they are */
        for (int split = 0; split < 2; split++) {
            make_call(k, type, k->in, in[split], out[split]);
            run_op_split(k->op, &k->attr, in[split], out[split], tested(), 1, split ? place : 0);
        }
        if (same_bits(&out[0][0], &out[1][0]) || !(distance(&out[0][0], &out[1][0]) < 1e-6))
            fail_msg("%s, %s, split at %d: the sums are the same, or far", k->op->name, ndp_dtype_name(type), place);
        for (int split = 0; split < 2; split++)
            free_call(k, in[split], out[split]);
        for (int c = 0; c < 3; c++)
            free_matrices(&cases[c].in[1], 1);
        free_matrices(&x, 1);
        free_matrices(&offsets, 1);
    }
}

/* test_linear_stack [PATTERN]: tests whose names match. */
int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_stack_kernels), cmocka_unit_test(linear_stack_kernels_of_many_tiles),
        cmocka_unit_test(groups_of_many_sizes), cmocka_unit_test(bits_of_equal_rows),
        cmocka_unit_test(linear_stack_bits),    cmocka_unit_test(stack_of_one),
        cmocka_unit_test(empty_groups),         cmocka_unit_test(split_sums_are_others),
    };
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    return end_of_ops(cmocka_run_group_tests(tests, NULL, NULL));
}
