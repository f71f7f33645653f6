/* Every cpu kernel against ref: fp32 and bf16, odd sizes, padded rows, 1 to 3 threads with equal bits, accumulation,
 * absent operands; with all instruction sets of this CPU, then with each lower NDP_ISA. */
#include "op_test.h"
#include "ops/cpu/vector.h"

typedef struct kernel_case {
    const ndp_op *op;
    ndp_op_attr attr;
    ndp_view in[NDP_OP_MAX_IN]; /* fp32 or integers; converted to the type under test */
    unsigned wide;              /* inputs that stay fp32 in bf16: statistics of rows, tables */
    unsigned exact;             /* inputs that stay fp64 */
    unsigned asked;             /* outputs */
    int64_t out_rows;           /* of out[0], where the shape rule cannot know them */
} kernel_case;

static ndp_dtype type_of(const kernel_case *k, int i, ndp_dtype t) {
    return k->exact >> i & 1 ? NDP_F64 : k->wide >> i & 1 ? NDP_F32 : t;
}

/* Outputs for operands of type t; where a kernel adds, both backends start from the same numbers. */
static void make_call(const kernel_case *k, ndp_dtype t, const ndp_view *from, ndp_view *in, ndp_view *out) {
    memset(in, 0, sizeof(ndp_view) * NDP_OP_MAX_IN);
    memset(out, 0, sizeof(ndp_view) * NDP_OP_MAX_OUT);
    for (int i = 0; i < k->op->n_in; i++)
        in[i] = copy_as(t == NDP_F64 ? NDP_F64 : type_of(k, i, t), &from[i]);
    out[0].rows = k->out_rows;
    make_outputs(k->op, &k->attr, in, out, k->asked);
    for (int o = 0; o < k->op->n_out; o++)
        if (k->op->alias < 0 || o > 0)
            for (int64_t r = 0; out[o].data && r < out[o].rows; r++)
                for (int64_t c = 0; c < out[o].cols; c++) /* exact in bf16 */
                    ndp_view_set(&out[o], r, c, (double)((r * 7 + c * 3) % 9) / 4 - 1);
}

static void free_call(const kernel_case *k, ndp_view *in, ndp_view *out) {
    free_matrices(in, k->op->n_in);
    for (int o = 0; o < k->op->n_out; o++)
        if (k->op->alias < 0 || o > 0)
            free_matrices(&out[o], 1);
}

static void compare(const kernel_case *k, const ndp_view *out, const ndp_view *expected, ndp_dtype t, int threads) {
    for (int o = 0; o < k->op->n_out; o++) {
        if (!out[o].data)
            continue;
        double far = distance(&out[o], &expected[o]), allowed = out[o].dtype == NDP_BF16 ? 4e-3 : 1e-6;
        if (t == NDP_BF16 && (k->op == &ndp_op_xent || k->op == &ndp_op_add_rmsnorm))
            allowed = 4e-3; /* fp32 results behind values that are rounded to bf16 on the way */
        if (!(far <= allowed))
            fail_msg("%s, output %d, %s, [%lld,%lld], %d threads: off by %g", k->op->name, o, ndp_dtype_name(t),
                     (long long)out[o].rows, (long long)out[o].cols, threads, far);
    }
}

static bool same_bits(const ndp_view *a, const ndp_view *b) {
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t c = 0; c < a->cols; c++)
            if (ndp_view_get(a, r, c) != ndp_view_get(b, r, c))
                return false;
    return true;
}

/* `strict`: equal bits from any number of threads; products of the library promise less. */
static void check_type(const kernel_case *k, ndp_dtype t, bool strict) {
    ndp_view rounded[NDP_OP_MAX_IN] = {{0}}, in[NDP_OP_MAX_IN], out[NDP_OP_MAX_OUT];
    ndp_view ref_in[NDP_OP_MAX_IN], ref_out[NDP_OP_MAX_OUT], one_in[NDP_OP_MAX_IN], one[NDP_OP_MAX_OUT];
    for (int i = 0; i < k->op->n_in; i++)
        rounded[i] = copy_as(type_of(k, i, t), &k->in[i]);
    make_call(k, NDP_F64, rounded, ref_in, ref_out);
    run_op(k->op, &k->attr, ref_in, ref_out, NDP_BACKEND_REF, 1);
    for (int threads = 1; threads <= (k->op->prepare ? 2 : 3); threads++) {
        make_call(k, t, rounded, in, out);
        run_op(k->op, &k->attr, in, out, NDP_BACKEND_CPU, threads);
        compare(k, out, ref_out, t, threads);
        if (threads == 1) {
            memcpy(one_in, in, sizeof in);
            memcpy(one, out, sizeof out);
            continue;
        }
        for (int o = 0; strict && o < k->op->n_out; o++)
            if (out[o].data && !same_bits(&out[o], &one[o]))
                fail_msg("%s, output %d: %d threads give other bits than one", k->op->name, o, threads);
        free_call(k, in, out);
    }
    free_call(k, one_in, one);
    free_call(k, ref_in, ref_out);
    free_matrices(rounded, k->op->n_in);
}

static void check_kernel(kernel_case *k) {
    bool product = k->op->prepare != NULL;
    if (!k->asked)
        k->asked = ~0u;
    check_type(k, NDP_F32, !product || ndp_cpu_has_avx512());
    check_type(k, NDP_BF16, !product || ndp_cpu_has_avx512_bf16());
    free_matrices(k->in, k->op->n_in);
}

static const int64_t sizes[] = {1, 3, 17, 64, 129};
#define FOR_SIZES(t, c)                                                                                                \
    for (int ti_ = 0; ti_ < NDP_COUNT(sizes); ti_++)                                                                   \
        for (int ci_ = 0; ci_ < NDP_COUNT(sizes); ci_++)                                                               \
            for (int64_t t = sizes[ti_], c = sizes[ci_], once_ = 1; once_; once_ = 0)

static ndp_view some(int64_t rows, int64_t cols, uint64_t seed) { return random_matrix(NDP_F32, rows, cols, seed); }

static void embedding_kernels(void **state) {
    (void)state;
    FOR_SIZES(t, c) for (int accumulate = 0; accumulate < 2; accumulate++) {
        kernel_case forward = {&ndp_op_embedding, .in = {random_ints(t, 0, 11, 1), some(11, c, 2)}};
        kernel_case dw = {&ndp_op_embedding_dw,
                          {.accumulate = accumulate},
                          .in = {random_ints(t, 0, 11, 1), some(t, c, 2)},
                          .out_rows = 13};
        check_kernel(&forward);
        check_kernel(&dw);
    }
}

static void linear_kernels(void **state) {
    (void)state;
    FOR_SIZES(t, c) for (int more = 0; more < 2; more++) {
        kernel_case forward = {&ndp_op_linear,
                               .in = {some(t, 33, 1), some(c, 33, 2), more ? some(1, c, 3) : (ndp_view){0}}};
        kernel_case dx = {&ndp_op_linear_dx,
                          .in = {some(t, c, 1), some(c, 33, 2), more ? some(t, 33, 3) : (ndp_view){0}}};
        kernel_case dw = {&ndp_op_linear_dw, {.accumulate = more}, .in = {some(t, c, 1), some(t, 33, 2)}};
        kernel_case db = {&ndp_op_linear_db, {.accumulate = more}, .in = {some(t, c, 1)}};
        check_kernel(&forward);
        check_kernel(&dx);
        check_kernel(&dw);
        check_kernel(&db);
    }
}

/* The earlier gradient may already lie in the output. */
static void linear_dx_in_place(void **state) {
    (void)state;
    ndp_view in[3] = {some(5, 7, 1), some(7, 9, 2), some(5, 9, 3)}, out[1], apart[1] = {matrix(NDP_F32, 5, 9)};
    run_op(&ndp_op_linear_dx, &(ndp_op_attr){0}, in, apart, NDP_BACKEND_CPU, 2);
    out[0] = in[2];
    run_op(&ndp_op_linear_dx, &(ndp_op_attr){0}, in, out, NDP_BACKEND_CPU, 2);
    assert_true(same_bits(&out[0], &apart[0]));
    free_matrices(in, 3);
    free_matrices(apart, 1);
}

static ndp_view some_rstd(int64_t t) {
    ndp_view v = matrix(NDP_F32, t, 1);
    for (int64_t i = 0; i < t; i++)
        ndp_view_set(&v, i, 0, 0.5 + (double)(i % 7) / 5);
    return v;
}

static void rmsnorm_kernels(void **state) {
    (void)state;
    FOR_SIZES(t, c) for (int more = 0; more < 2; more++) {
        ndp_op_attr attr = {.eps = 1e-5, .unit_offset = more, .accumulate = more};
        kernel_case forward = {&ndp_op_rmsnorm, attr, .in = {some(t, c, 1), some(1, c, 2)}};
        kernel_case dx = {
            &ndp_op_rmsnorm_dx, attr, .wide = 8,
            .in = {some(t, c, 1), some(t, c, 2), some(1, c, 3), some_rstd(t), more ? some(t, c, 4) : (ndp_view){0}}};
        kernel_case dw = {&ndp_op_rmsnorm_dw, attr, .wide = 4, .in = {some(t, c, 1), some(t, c, 2), some_rstd(t)}};
        kernel_case sum = {&ndp_op_add_rmsnorm, attr, .in = {some(t, c, 1), some(t, c, 2), some(1, c, 3)}};
        check_kernel(&forward);
        check_kernel(&dx);
        check_kernel(&dw);
        check_kernel(&sum);
    }
}

static void rope_kernels(void **state) {
    (void)state;
    FOR_SIZES(t, extra) for (int variant = 0; variant < 4; variant++) {
        int half = (int[]){1, 3, 16, 32}[variant];
        kernel_case k = {&ndp_op_rope,
                         {.heads = 3, .head_dim = 2 * half, .inverse = variant & 1},
                         .wide = 4,
                         .in = {some(t, 6 * half + extra, 1), random_ints(t, 0, 40, 2), some(40, 2 * half, 3)}};
        check_kernel(&k);
    }
}

static void elementwise_kernels(void **state) {
    (void)state;
    FOR_SIZES(t, c) {
        kernel_case forward = {&ndp_op_swiglu, .in = {some(t, 2 * c, 1)}};
        kernel_case backward = {&ndp_op_swiglu_bwd, .in = {some(t, c, 1), some(t, 2 * c, 2)}};
        kernel_case sum = {&ndp_op_add, .in = {some(t, c, 1), some(t, c, 2)}};
        check_kernel(&forward);
        check_kernel(&backward);
        check_kernel(&sum);
    }
}

/* From the smallest normal float to the largest, within 2 ulp; beyond them 0 and infinity. */
static void exponential(void **state) {
    (void)state;
    for (double x = -87.33; x < 88.72; x += 0.00037) {
        double e = exp((double)(float)x), ulp = ldexp(1, ilogb(e) - 23);
        if (!(fabs((double)ndp_vexpf((float)x) - e) <= 2 * ulp))
            fail_msg("exp(%.9g): %.9g, not %.9g", x, (double)ndp_vexpf((float)x), e);
    }
    assert_true(ndp_vexpf(-INFINITY) == 0 && ndp_vexpf(-90) == 0 && ndp_vexpf(0) == 1);
    assert_true(isinf(ndp_vexpf(INFINITY)) && isinf(ndp_vexpf(89)) && isnan(ndp_vexpf(NAN)));
}

static ndp_view one_double(double x) {
    ndp_view v = matrix(NDP_F64, 1, 1);
    ndp_view_set(&v, 0, 0, x);
    return v;
}

/* Several chunks with a last one of any size, padded vocabulary, ignored labels and whole chunks of them. */
static void xent_kernels(void **state) {
    (void)state;
    const int64_t rows[] = {1, 3, 255, 257, 600, 600};
    for (int i = 0; i < NDP_COUNT(rows); i++)
        for (unsigned variant = 0; variant < 8; variant++) {
            int64_t t = rows[i], v = variant & 1 ? 100 : 131;
            kernel_case k = {&ndp_op_xent,
                             {.vocab = 97, .train = true, .accumulate = variant & 2},
                             .exact = 8,
                             .in = {some(t, 19, 1), some(v, 19, 2), random_ints(t, -3, 97, 3), one_double(0.37)},
                             .asked = variant & 4 ? (variant & 1 ? 3 : 5) : 7};
            for (int64_t r = 0; r < t; r++)
                if (i == 5 || (i == 4 && r >= 256 && r < 512))
                    ndp_view_set(&k.in[2], r, 0, -100);
            check_kernel(&k);
        }
}

static void xent_without_training(void **state) {
    (void)state;
    kernel_case k = {&ndp_op_xent,
                     {.vocab = 97},
                     .exact = 8,
                     .asked = 1,
                     .in = {some(300, 19, 1), some(100, 19, 2), random_ints(300, -3, 97, 3), one_double(1)}};
    check_kernel(&k);
}

/* Logits far apart: no overflow, and a loss that is their distance. */
static void xent_of_extreme_logits(void **state) {
    (void)state;
    for (int backend = 0; backend < NDP_BACKENDS; backend++) {
        ndp_op_attr attr = {.vocab = 3, .train = true};
        ndp_view in[NDP_OP_MAX_IN] = {matrix(NDP_F32, 1, 1), matrix(NDP_F32, 3, 1), random_ints(1, 2, 3, 1),
                                      one_double(1)};
        ndp_view out[NDP_OP_MAX_OUT] = {{0}};
        ndp_view_set(&in[0], 0, 0, 1);
        ndp_view_set(&in[1], 0, 0, 1000);
        ndp_view_set(&in[1], 2, 0, -1000);
        make_outputs(&ndp_op_xent, &attr, in, out, 7);
        run_op(&ndp_op_xent, &attr, in, out, backend, 1);
        assert_true(ndp_view_get(&out[0], 0, 0) == 2000);
        assert_true(ndp_view_get(&out[1], 0, 0) == 2000);
        assert_true(ndp_view_get(&out[2], 0, 0) == 1 && ndp_view_get(&out[2], 1, 0) == 0);
        free_matrices(in, 4);
        free_matrices(out, 3);
    }
}

static void cache_and_sum(void **state) {
    (void)state;
    for (int backend = 0; backend < NDP_BACKENDS; backend++)
        for (int accumulate = 0; accumulate < 2; accumulate++) {
            ndp_op_attr attr = {.accumulate = accumulate};
            ndp_view in[NDP_OP_MAX_IN] = {some(2, 5, 1), random_ints(1, 3, 4, 2), some(9, 5, 3)};
            ndp_view out[NDP_OP_MAX_OUT] = {{0}}, before = copy_as(NDP_F32, &in[2]);
            make_outputs(&ndp_op_kv_append, &attr, in, out, 1);
            run_op(&ndp_op_kv_append, &attr, in, out, backend, 2);
            for (int64_t r = 0; r < 9; r++)
                for (int64_t c = 0; c < 5; c++)
                    assert_true(ndp_view_get(&out[0], r, c) ==
                                (r == 3 || r == 4 ? ndp_view_get(&in[0], r - 3, c) : ndp_view_get(&before, r, c)));
            free_matrices(in, 3);
            free_matrices(&before, 1);

            ndp_view x[1] = {some(100, 1, 4)}, sum[NDP_OP_MAX_OUT] = {one_double(0.5)};
            run_op(&ndp_op_reduce_sum, &attr, x, sum, backend, 2);
            double expected = accumulate ? 0.5 : 0;
            for (int64_t r = 0; r < 100; r++)
                expected += ndp_view_get(&x[0], r, 0);
            assert_true(ndp_view_get(&sum[0], 0, 0) == expected);
            free_matrices(x, 1);
            free_matrices(sum, 1);
        }
}

/* What does not fit is told before anything runs. */
static void shape_rules_refuse(void **state) {
    (void)state;
    ndp_op_attr attr = {.heads = 2, .head_dim = 4, .vocab = 10};
    ndp_view f = {.dtype = NDP_F32, .rows = 4, .cols = 6, .ld = 6}, h = f,
             ids = {.dtype = NDP_I32, .rows = 3, .cols = 1};
    ndp_view out[NDP_OP_MAX_OUT], none = {0}, row = {.dtype = NDP_F32, .rows = 1, .cols = 5};
    h.dtype = NDP_BF16;
    const struct {
        const ndp_op *op;
        ndp_view in[5];
    } bad[] = {
        {&ndp_op_embedding, {f, f}},       {&ndp_op_embedding_dw, {ids, f}},
        {&ndp_op_linear, {f, h, none}},    {&ndp_op_linear, {f, f, row}},
        {&ndp_op_linear_dx, {f, f, none}}, {&ndp_op_linear_dw, {f, h}},
        {&ndp_op_rmsnorm, {f, row}},       {&ndp_op_rmsnorm_dx, {f, h, row, f}},
        {&ndp_op_rmsnorm_dw, {f, h, f}},   {&ndp_op_add_rmsnorm, {f, h, row}},
        {&ndp_op_rope, {f, ids, f}},       {&ndp_op_swiglu, {row}},
        {&ndp_op_swiglu_bwd, {f, f}},      {&ndp_op_add, {f, h}},
        {&ndp_op_xent, {f, f, ids, f}},    {&ndp_op_kv_append, {f, ids, row}},
        {&ndp_op_reduce_sum, {f}},
    };
    for (int i = 0; i < NDP_COUNT(bad); i++) {
        assert_int_equal(bad[i].op->shape(&attr, bad[i].in, out), NDP_EBUG);
        assert_non_null(strstr(ndp_error_message(), "["));
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exponential),           cmocka_unit_test(embedding_kernels),
        cmocka_unit_test(linear_kernels),        cmocka_unit_test(linear_dx_in_place),
        cmocka_unit_test(rmsnorm_kernels),       cmocka_unit_test(rope_kernels),
        cmocka_unit_test(elementwise_kernels),   cmocka_unit_test(xent_kernels),
        cmocka_unit_test(xent_without_training), cmocka_unit_test(xent_of_extreme_logits),
        cmocka_unit_test(cache_and_sum),         cmocka_unit_test(shape_rules_refuse),
    };
    (void)argc;
    return run_on_every_isa(argv, cmocka_run_group_tests(tests, NULL, NULL));
}
