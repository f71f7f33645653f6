/* The ops of a step that are not a model's, on all devices: counts, scales, sums of squares, clipping, tables of
 * pieces. The updates of optimizers are in tests/optim/test_update.c. */
#include "base/rng.h"
#include "op_test.h"
#include "ops/pieces.h"
#include "ops/update.h"

enum { MOST = 300007 };
static float single[MOST];
static double wide[MOST];
static uint16_t half[MOST];
static const ndp_dtype types[] = {NDP_F32, NDP_F64, NDP_BF16};

static void fill(void) {
    ndp_rng_normal(3, 1, 0, MOST, 1e-3, single);
    for (int i = 0; i < MOST; i++) {
        wide[i] = (double)single[i] * (1 + 1e-9 * (i % 5));
        half[i] = ndp_f32_to_bf16(single[i]);
    }
}

static ndp_view row(void *data, ndp_dtype type, int64_t n) { return (ndp_view){data, type, 1, n, n}; }

/* Elements of a gradient. */
static int64_t most(void) { return small_sizes() ? 100003 : MOST; }

static ndp_view gradient(ndp_dtype type) {
    return row(type == NDP_F32 ? (void *)single : type == NDP_F64 ? (void *)wide : (void *)half, type, most());
}

static ndp_view table_of(int64_t (*pieces)[NDP_PIECE_COLUMNS], int64_t n) {
    return (ndp_view){n ? pieces : NULL, NDP_I64, n, NDP_PIECE_COLUMNS, NDP_PIECE_COLUMNS};
}

/* fp64 storage runs on `ref` only. */
static bool runs(const ndp_device *d, ndp_dtype type) { return type != NDP_F64 || d == &ndp_device_ref; }

static double square_sum(const ndp_device *d, int threads, ndp_dtype type, ndp_view pieces, bool accumulate,
                         double before) {
    ndp_op_attr attr = {.accumulate = accumulate};
    ndp_view in[] = {gradient(type), pieces}, out[NDP_OP_MAX_OUT] = {row(&before, NDP_F64, 1)};
    make_outputs(&ndp_op_square_sum, &attr, in, out, 1);
    run_op(&ndp_op_square_sum, &attr, in, out, d, threads);
    return before;
}

static double square_sum_of(const ndp_device *d, int threads, ndp_dtype type, int64_t first, int64_t n) {
    int64_t piece[1][NDP_PIECE_COLUMNS] = {{first, n, ndp_piece_facts(1, 0)}};
    return square_sum(d, threads, type, table_of(piece, 1), false, 7);
}

static long double squares(ndp_dtype type, int64_t first, int64_t n) {
    ndp_view x = gradient(type);
    long double sum = 0;
    for (int64_t i = first; i < first + n; i++)
        sum += (long double)ndp_view_get(&x, 0, i) * (long double)ndp_view_get(&x, 0, i);
    return sum;
}

/* fp32 sums are the same on both devices, and no number of threads changes a sum. */
static void sums_are_exact_to_fp64(void **state) {
    (void)state;
    const int64_t sizes[] = {0, 1, 2, 15, 16, 17, 1023, 16383, 16384, 16385, 99991, most() - 1};
    fill();
    for (int k = 0; k < NDP_COUNT(types) * NDP_COUNT(sizes) * DEVICES; k++) {
        ndp_dtype type = types[k % NDP_COUNT(types)];
        int64_t n = sizes[k / NDP_COUNT(types) % NDP_COUNT(sizes)];
        const ndp_device *d = device_at(k / NDP_COUNT(types) / NDP_COUNT(sizes));
        if (!runs(d, type))
            continue;
        double expected = (double)squares(type, 1, n), one = square_sum_of(d, 1, type, 1, n);
        if (fabs(one - expected) > 1e-13 * expected)
            fail_msg("%s, type %d, n %lld: %.17g, expected %.17g", d->name, type, (long long)n, one, expected);
        assert_true(type != NDP_F32 || one == square_sum_of(&ndp_device_ref, 1, type, 1, n));
        for (int threads = 2; threads < (d->host_memory ? 6 : 3); threads++)
            assert_true(square_sum_of(d, threads, type, 1, n) == one);
    }
}

/* Bit by bit: a call is the sum before, plus each piece by itself over its copies, in order. What is in no piece does
 * not count. */
static void pieces_are_added_in_order(void **state) {
    (void)state;
    enum { MANY = 37 }; /* small ones after the first five, some of them empty */
    int64_t pieces[MANY][NDP_PIECE_COLUMNS] = {{0, 100, ndp_piece_facts(1, 1)},
                                               {128, 17, ndp_piece_facts(3, 0)},
                                               {192, 60000, ndp_piece_facts(4, 1)},
                                               {60224, 1, ndp_piece_facts(1, 0)},
                                               {60288, 20001, ndp_piece_facts(2, 0)}};
    for (int i = 5; i < MANY; i++)
        pieces[i][NDP_PIECE_FIRST] = 80320 + 320 * i, pieces[i][NDP_PIECE_COUNT] = i * i % 311,
        pieces[i][NDP_PIECE_FACTS] = ndp_piece_facts(1 + i % 3, i % 2);
    fill();
    for (int k = 0; k < 2 * DEVICES * NDP_COUNT(types); k++) {
        const ndp_device *d = device_at(k / 2 % DEVICES);
        ndp_dtype type = types[k / 2 / DEVICES];
        if (!runs(d, type))
            continue;
        double expected = k & 1 ? 1e-4 : 0;
        for (int i = 0; i < NDP_COUNT(pieces); i++)
            expected += square_sum_of(d, 1, type, pieces[i][0], pieces[i][1]) / (double)ndp_piece_copies(pieces[i]);
        assert_true(square_sum(d, 2, type, table_of(pieces, NDP_COUNT(pieces)), k & 1, 1e-4) == expected);
        assert_true(square_sum(d, 2, type, table_of(pieces, 0), k & 1, 1e-4) == (k & 1 ? 1e-4 : 0));
    }
}

/* fp32 and bf16 sums are the same on every machine. */
static void instruction_sets_agree(void **state) {
    (void)state;
    fill();
    const char *word = getenv("NDP_ISA");
    char before[32];
    snprintf(before, sizeof before, "%s", word ? word : "");
    setenv("NDP_ISA", "generic", 1);
    double f32 = square_sum_of(&ndp_device_cpu, 2, NDP_F32, 0, most());
    double bf16 = square_sum_of(&ndp_device_cpu, 2, NDP_BF16, 0, most());
    setenv("NDP_ISA", before, 1); /* "" limits nothing */
    assert_true(square_sum_of(&ndp_device_cpu, 2, NDP_F32, 0, most()) == f32);
    assert_true(square_sum_of(&ndp_device_cpu, 2, NDP_BF16, 0, most()) == bf16);
}

/* Squares of large floats overflow fp32, not the sum; a broken value anywhere shows. */
static void broken_values_come_through(void **state) {
    (void)state;
    fill();
    const int64_t places[] = {0, 15, 16, most() / 3 * 2, most() - 1};
    for (int i = 0; i < NDP_COUNT(places) * DEVICES; i++) {
        const ndp_device *d = device_at(i % DEVICES);
        float *x = single + places[i / DEVICES], before = *x;
        uint16_t *h = half + places[i / DEVICES];
        *x = 3e38f;
        assert_true(isfinite(square_sum_of(d, 2, NDP_F32, 0, most())));
        *x = -INFINITY;
        assert_true(square_sum_of(d, 2, NDP_F32, 0, most()) == INFINITY);
        *x = NAN;
        assert_true(isnan(square_sum_of(d, 2, NDP_F32, 0, most())));
        *x = before;
        *h = 0x7fc0;
        assert_true(isnan(square_sum_of(d, 2, NDP_BF16, 0, most())));
        *h = ndp_f32_to_bf16(before);
    }
}

static double clip(const ndp_device *d, double norm, double max_norm) {
    double squared = norm * norm, root = 7, factor = 7;
    ndp_op_attr attr = {.max_norm = max_norm, .scale = 1};
    ndp_view in[NDP_OP_MAX_IN] = {row(&squared, NDP_F64, 1)}; /* and no loss */
    ndp_view out[NDP_OP_MAX_OUT] = {row(&root, NDP_F64, 1), row(&factor, NDP_F64, 1)};
    make_outputs(&ndp_op_clip_factor, &attr, in, out, 3);
    run_op(&ndp_op_clip_factor, &attr, in, out, d, 2);
    assert_true(root == norm || (isnan(root) && isnan(norm)));
    return factor;
}

static void factor_shrinks_only(void **state) {
    (void)state;
    for (int i = 0; i < DEVICES; i++) {
        assert_true(clip(device_at(i), 4, 1) == 0.25);
        assert_true(clip(device_at(i), 1, 1) == 1);
        assert_true(clip(device_at(i), 0.5, 1) == 1);
        assert_true(clip(device_at(i), 4, 0) == 1); /* no clipping */
        assert_true(clip(device_at(i), 0, 1) == 1);
        assert_true(isnan(clip(device_at(i), INFINITY, 1))); /* the step is not applied */
        assert_true(isnan(clip(device_at(i), INFINITY, 0)));
        assert_true(isnan(clip(device_at(i), NAN, 1)));
        assert_true(isnan(clip(device_at(i), NAN, 0)));
    }
}

/* Numbers with all bits of a mask. */
static void marks_are_counted(void **state) {
    (void)state;
    for (int i = 0; i < DEVICES; i++)
        for (int mask = 0; mask < 8; mask++) {
            int32_t codes[2][50];
            int64_t count = 7, expected = 0;
            for (int t = 0; t < 2 * 50; t++)
                codes[t / 50][t % 50] = t % 7 == 3 ? -1 : t;
            for (int t = 0; t < 2 * 47; t++)
                expected += codes[t / 47][t % 47] >= 0 && (codes[t / 47][t % 47] & mask) == mask;
            ndp_op_attr attr = {.mask = mask};
            ndp_view in[] = {{codes, NDP_I32, 2, 47, 50}}, out[NDP_OP_MAX_OUT] = {row(&count, NDP_I64, 1)};
            run_op(&ndp_op_count_valid, &attr, in, out, device_at(i), 2);
            assert_int_equal(count, expected);
        }
}

/* Rows of labels with something else between them, whose signs must not count. */
static void labels_are_counted(void **state) {
    (void)state;
    for (int i = 0; i < DEVICES; i++)
        for (int rows = 0; rows < 4; rows++) {
            ndp_view in[1], out[NDP_OP_MAX_OUT] = {{0}};
            int32_t labels[4][50];
            int64_t valid = 7, expected = 0;
            double scale = 7;
            for (int t = 0; t < 4 * 50; t++)
                labels[t / 50][t % 50] = t * t % 11 < 4 ? -1 - t % 3 : t % 5;
            for (int t = 0; t < rows * 47; t++)
                expected += labels[t / 47][t % 47] >= 0;
            in[0] = (ndp_view){labels, NDP_I32, rows, 47, 50};
            out[0] = row(&valid, NDP_I64, 1);
            make_outputs(&ndp_op_count_valid, &(ndp_op_attr){0}, in, out, 1);
            run_op(&ndp_op_count_valid, &(ndp_op_attr){0}, in, out, device_at(i), 2);
            assert_int_equal(valid, expected);
            in[0] = out[0];
            out[0] = row(&scale, NDP_F64, 1);
            make_outputs(&ndp_op_loss_scale, &(ndp_op_attr){0}, in, out, 1);
            run_op(&ndp_op_loss_scale, &(ndp_op_attr){0}, in, out, device_at(i), 2);
            assert_true(scale == (rows ? 1.0 / (double)expected : 0));
        }
}

/* All elements, and nothing between the rows. */
static void zeros_are_written(void **state) {
    (void)state;
    for (int k = 0; k < NDP_DTYPES * DEVICES; k++) {
        ndp_dtype type = (ndp_dtype)(k / DEVICES);
        unsigned char data[3 * 20 * 8];
        size_t size = ndp_dtype_size(type);
        memset(data, 0xa5, sizeof data);
        ndp_view in[] = {{data, type, 3, 17, 20}}, out[NDP_OP_MAX_OUT] = {{0}};
        make_outputs(&ndp_op_zero, &(ndp_op_attr){0}, in, out, 1);
        run_op(&ndp_op_zero, &(ndp_op_attr){0}, in, out, device_at(k % DEVICES), 2);
        for (size_t i = 0; i < sizeof data; i++)
            assert_int_equal(data[i], i < 3 * 20 * size && i / size % 20 < 17 ? 0 : 0xa5);
    }
}

static void shape_rules_refuse(void **state) {
    (void)state;
    const ndp_view w = {.dtype = NDP_F32, .rows = 1, .cols = 6, .ld = 6},
                   one = {.dtype = NDP_F64, .rows = 1, .cols = 1};
    const ndp_view p = {.dtype = NDP_I64, .rows = 2, .cols = NDP_PIECE_COLUMNS, .ld = NDP_PIECE_COLUMNS}, none = {0};
    const ndp_view k = {.dtype = NDP_F64, .rows = 1, .cols = NDP_OPTIMIZER_CONSTANTS, .ld = NDP_OPTIMIZER_CONSTANTS};
    const ndp_view h = {.dtype = NDP_BF16, .rows = 1, .cols = 6}, rows = {.dtype = NDP_F32, .rows = 2, .cols = 6};
    const struct {
        const ndp_op *op;
        bool fits;
        ndp_view in[NDP_UPDATE_OPERANDS];
    } cases[] = {{&ndp_op_count_valid, false, {w}},
                 {&ndp_op_loss_scale, false, {one}},
                 {&ndp_op_clip_factor, false, {w}},
                 {&ndp_op_router_bias_step, true, {w, k, one}},
                 {&ndp_op_router_bias_step, true, {w, k, none}},
                 {&ndp_op_router_bias_step, false, {h, k, one}},
                 {&ndp_op_router_bias_step, false, {w, w, one}},
                 {&ndp_op_router_bias_step, false, {w, k, w}},
                 {&ndp_op_square_sum, true, {h, p}},
                 {&ndp_op_square_sum, false, {rows, p}},
                 {&ndp_op_square_sum, false, {w, k}},
                 {&ndp_op_adamw, true, {w, w, p, k, one, w, w}},
                 {&ndp_op_adamw, true, {w, w, none, k, one, w, w}},
                 {&ndp_op_adamw, false, {h, h, p, k, one, h, h}},
                 {&ndp_op_adamw, false, {w, h, p, k, one, w, w}},
                 {&ndp_op_adamw, false, {w, w, w, k, one, w, w}},
                 {&ndp_op_adamw, false, {w, w, p, one, one, w, w}},
                 {&ndp_op_adamw, false, {w, w, p, k, w, w, w}},
                 {&ndp_op_adamw, false, {w, w, p, k, one, w, none}},
                 {&ndp_op_sgd, true, {w, w, p, k, one, none, none}},
                 {&ndp_op_sgd, true, {w, w, p, k, one, w, none}},
                 {&ndp_op_sgd, false, {w, w, p, k, one, h, none}},
                 {&ndp_op_sgd, false, {w, w, p, k, one, w, w}},
                 {&ndp_op_lion, true, {w, w, p, k, one, w, none}},
                 {&ndp_op_lion, false, {w, w, p, k, one, none, none}},
                 {&ndp_op_lion, false, {w, w, p, k, one, w, w}}};
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        ndp_view out[NDP_OP_MAX_OUT] = {{0}};
        ndp_status st = apply_shape(cases[i].op, &(ndp_op_attr){0}, cases[i].in, out);
        if (st != (cases[i].fits ? NDP_OK : NDP_EBUG))
            fail_msg("case %d, %s: status %d", i, cases[i].op->name, st);
        assert_true(st == NDP_OK || strstr(ndp_error_message(), "["));
        for (int o = 0; st == NDP_OK && o < cases[i].op->n_out; o++)
            assert_int_equal(out[o].cols, cases[i].op == &ndp_op_square_sum ? 1 : 6);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_exact_to_fp64), cmocka_unit_test(pieces_are_added_in_order),
        cmocka_unit_test(instruction_sets_agree), cmocka_unit_test(broken_values_come_through),
        cmocka_unit_test(factor_shrinks_only),    cmocka_unit_test(labels_are_counted),
        cmocka_unit_test(marks_are_counted),      cmocka_unit_test(zeros_are_written),
        cmocka_unit_test(shape_rules_refuse)};
    return end_of_ops(cmocka_run_group_tests(tests, NULL, NULL));
}
