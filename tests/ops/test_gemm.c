/* Matrix products against fp64 sums: every storage order and type, odd sizes, strides, accumulation, threads; by our
 * own kernels and, with NDP_ISA=generic, by the library. */
#include "op_test.h"
#include "ops/cpu/cpu_gemm.h"

#include <pthread.h>
#include <unistd.h>

typedef struct product {
    ndp_view a, b, c;
    bool trans_a, trans_b, accumulate;
} product;

static product make_product(int64_t m, int64_t n, int64_t k, unsigned variant, ndp_dtype in, ndp_dtype out) {
    product p = {.trans_a = variant & 1, .trans_b = variant & 2, .accumulate = variant & 4};
    p.a = p.trans_a ? random_matrix(in, k, m, 1) : random_matrix(in, m, k, 1);
    p.b = p.trans_b ? random_matrix(in, n, k, 2) : random_matrix(in, k, n, 2);
    p.c = random_matrix(out, m, n, 3);
    return p;
}

static ndp_view expected(const product *p) {
    ndp_view e = copy_as(NDP_F64, &p->c);
    int64_t k = p->trans_a ? p->a.rows : p->a.cols;
    for (int64_t i = 0; i < e.rows; i++)
        for (int64_t j = 0; j < e.cols; j++) {
            double sum = p->accumulate ? ndp_view_get(&e, i, j) : 0;
            for (int64_t l = 0; l < k; l++)
                sum += (p->trans_a ? ndp_view_get(&p->a, l, i) : ndp_view_get(&p->a, i, l)) *
                       (p->trans_b ? ndp_view_get(&p->b, j, l) : ndp_view_get(&p->b, l, j));
            ndp_view_set(&e, i, j, sum);
        }
    return e;
}

static void multiply_split(const product *p, const ndp_view *c, int threads, int split) {
    ndp_exec exec = {.threads = threads, .sums = split ? NDP_SUMS_SPLIT : NDP_SUMS_FAST, .split_place = split};
    ndp_gemm_shape s = ndp_gemm_shape_of(&p->a, p->trans_a, &p->b, p->trans_b, c, p->accumulate, &exec);
    const ndp_gemm *plan, *again;
    require_ok(ndp_gemm_plan(&s, &plan));
    require_ok(ndp_gemm_plan(&s, &again));
    assert_ptr_equal(plan, again);
    void *scratch = aligned_alloc(64, (ndp_gemm_scratch(plan) + 64) / 64 * 64);
    ndp_gemm_run(plan, p->a.data, p->b.data, c->data, scratch);
    free(scratch);
}

static void multiply(const product *p, const ndp_view *c, int threads) { multiply_split(p, c, threads, 0); }

/* Four tiles of odd sizes, with scratch memory for all products up to these, exactly. */
static void multiply_tiles(const product *p, const ndp_view *c, int split) {
    ndp_exec exec = {.threads = 1, .sums = split ? NDP_SUMS_SPLIT : NDP_SUMS_FAST, .split_place = split};
    ndp_gemm_shape s = ndp_gemm_shape_of(&p->a, p->trans_a, &p->b, p->trans_b, c, p->accumulate, &exec), most = s;
    most.k += most.k % 3 * 600;
    require_ok(ndp_gemm_ready());
    size_t bytes = ndp_gemm_tile_scratch(&most);
    void *scratch = aligned_alloc(64, bytes ? bytes : 64);
    assert_int_equal(bytes % 64, 0);
    memset(scratch, 0xff, bytes);
    for (int i = 0; i < 4; i++) {
        int64_t row = i / 2 ? c->rows / 3 : 0, col = i % 2 ? c->cols / 2 : 0;
        int64_t in = (int64_t)ndp_dtype_size(s.a), out = (int64_t)ndp_dtype_size(s.c);
        ndp_gemm_shape tile = s;
        tile.m = (i / 2 ? c->rows : c->rows / 3) - row, tile.n = (i % 2 ? c->cols : c->cols / 2) - col;
        if (tile.m > 0 && tile.n > 0)
            ndp_gemm_tile(&tile, (char *)p->a.data + row * (p->trans_a ? 1 : s.lda) * in,
                          (char *)p->b.data + col * (p->trans_b ? s.ldb : 1) * in,
                          (char *)c->data + (row * s.ldc + col) * out, scratch);
    }
    free(scratch);
}

static void check_near(const product *p, const ndp_view *c, const ndp_view *e) {
    double far = distance(c, e), allowed = c->dtype == NDP_BF16 ? 4e-3 : 1e-6;
    if (!(far < allowed))
        fail_msg("%lld x %lld x %lld, %d %d %d, %s: off by %g", (long long)c->rows, (long long)c->cols,
                 (long long)(p->trans_a ? p->a.rows : p->a.cols), p->trans_a, p->trans_b, p->accumulate,
                 ndp_dtype_name(p->a.dtype), far);
}

/* Tiles against the whole product, `first`: our own kernels give equal bits. */
static void check_tiles(const product *p, const ndp_view *e, const ndp_view *first) {
    for (int split = 0; split < 2; split++) {
        ndp_view c = copy_as(p->c.dtype, &p->c);
        multiply_tiles(p, &c, split ? 2 : 0);
        check_near(p, &c, e);
        if (!split && ndp_cpu_has_avx512())
            assert_memory_equal(first->data, c.data, (size_t)(c.rows * c.ld) * ndp_dtype_size(c.dtype));
        free_matrices(&c, 1);
    }
}

static void check_product(int64_t m, int64_t n, int64_t k, unsigned variant, ndp_dtype in, ndp_dtype out) {
    product p = make_product(m, n, k, variant, in, out);
    ndp_view e = expected(&p), first = copy_as(out, &p.c);
    for (int threads = 1; threads <= 5; threads++) {
        ndp_view c = copy_as(out, &p.c);
        multiply(&p, &c, threads);
        check_near(&p, &c, &e);
        if (threads == 1)
            memcpy(first.data, c.data, (size_t)(c.rows * c.ld) * ndp_dtype_size(out));
        else if (ndp_cpu_has_avx512()) /* the library cuts k as the threads ask */
            assert_memory_equal(first.data, c.data, (size_t)(c.rows * c.ld) * ndp_dtype_size(out));
        free_matrices(&c, 1);
    }
    ndp_view split = copy_as(out, &p.c);
    multiply_split(&p, &split, 2, true);
    check_near(&p, &split, &e);
    if (out == NDP_F32 && k >= 100) /* other sums */
        assert_memory_not_equal(first.data, split.data, (size_t)(e.rows * first.ld) * ndp_dtype_size(out));
    check_tiles(&p, &e, &first);
    free_matrices(&split, 1);
    free_matrices(&e, 1);
    free_matrices(&first, 1);
    free_matrices(&p.a, 3);
}

static const int64_t shapes[][3] = {{1, 1, 1},      {3, 17, 5},     {14, 32, 16},   {15, 33, 17},
                                    {129, 17, 64},  {1, 129, 400},  {64, 1, 777},   {28, 64, 385},
                                    {1030, 40, 18}, {37, 300, 130}, {19, 70, 1153}, {3, 5, 2999}};

/* More than one chunk, group, piece and block of k of the kernels of bf16, and combinations. */
static const int64_t long_shapes[][3] = {{34, 1790, 37},  {1000, 20, 1030}, {1100, 33, 520},
                                         {33, 600, 1100}, {3, 1800, 1201},  {700, 5, 2403}};

static void fp32_products(void **state) {
    (void)state;
    for (int i = 0; i < NDP_COUNT(shapes); i++)
        for (unsigned variant = 0; variant < 8; variant++)
            check_product(shapes[i][0], shapes[i][1], shapes[i][2], variant, NDP_F32, NDP_F32);
}

static void bf16_products(void **state) {
    (void)state;
    for (int i = 0; i < NDP_COUNT(shapes); i++)
        for (unsigned variant = 0; variant < 8; variant++) {
            check_product(shapes[i][0], shapes[i][1], shapes[i][2], variant, NDP_BF16, NDP_F32);
            check_product(shapes[i][0], shapes[i][1], shapes[i][2], variant, NDP_BF16, NDP_BF16);
        }
}

static void long_bf16_products(void **state) {
    (void)state;
    for (int i = 0; i < NDP_COUNT(long_shapes); i++)
        for (unsigned variant = 0; variant < 8; variant++)
            check_product(long_shapes[i][0], long_shapes[i][1], long_shapes[i][2], variant, NDP_BF16,
                          (variant ^ variant >> 2) & 1 ? NDP_F32 : NDP_BF16);
}

/* By tiles, a C above 16 MiB goes past the caches. */
static void large_results(void **state) {
    (void)state;
    if (!ndp_cpu_has_amx_bf16())
        return;
    check_product(131, 33000, 3, 0, NDP_BF16, NDP_F32);
    check_product(131, 66000, 2, 2, NDP_BF16, NDP_BF16);
}

/* A bf16 C is rounded once, at the end of a long sum: 1499 times 1, then 1499 times -1, and 1. */
static void sums_are_wide(void **state) {
    (void)state;
    for (unsigned way = 0; way < 4; way++) {
        unsigned accumulate = way % 2, split = way / 2;
        product p = make_product(3, 40, 3000, 2 + 4 * accumulate, NDP_BF16, NDP_BF16);
        for (int64_t l = 0; l < 3000; l++) {
            for (int64_t i = 0; i < 3; i++)
                ndp_view_set(&p.a, i, l, 1);
            for (int64_t j = 0; j < 40; j++)
                ndp_view_set(&p.b, j, l, l == 0 ? 0 : l < 1500 || l == 2999 ? 1 : -1);
        }
        for (int64_t i = 0; i < 3; i++)
            for (int64_t j = 0; j < 40; j++)
                ndp_view_set(&p.c, i, j, 2);
        multiply_split(&p, &p.c, 2, split);
        for (int64_t i = 0; i < 3; i++)
            for (int64_t j = 0; j < 40; j++)
                assert_true(ndp_view_get(&p.c, i, j) == 1 + 2 * accumulate);
        free_matrices(&p.a, 3);
    }
}

/* Infinities and NaN go where they belong and nowhere else. */
static void special_values(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        ndp_dtype t = i ? NDP_BF16 : NDP_F32;
        product p = make_product(20, 40, 18, 2, t, t);
        ndp_view_set(&p.a, 7, 3, NAN);
        ndp_view_set(&p.b, 33, 5, INFINITY);
        multiply(&p, &p.c, 1);
        for (int64_t r = 0; r < 20; r++)
            for (int64_t c = 0; c < 40; c++)
                assert_int_equal(!isfinite(ndp_view_get(&p.c, r, c)), r == 7 || c == 33);
        free_matrices(&p.a, 3);
    }
}

/* Ranks are threads: they share plans. */
static void *many_products(void *arg) {
    const ndp_view *e = arg;
    product p = make_product(65, 47, 129, 2, NDP_BF16, NDP_F32);
    for (int i = 0; i < 50; i++) {
        multiply(&p, &p.c, 1);
        if (distance(&p.c, e) > 1e-6)
            return "wrong";
    }
    free_matrices(&p.a, 3);
    return NULL;
}

static void plans_are_shared(void **state) {
    (void)state;
    product p = make_product(65, 47, 129, 2, NDP_BF16, NDP_F32);
    ndp_view e = expected(&p);
    pthread_t threads[4];
    void *wrong;
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, many_products, &e), 0);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
    free_matrices(&e, 1);
    free_matrices(&p.a, 3);
}

static void bad_shapes_are_refused(void **state) {
    (void)state;
    const ndp_gemm *plan;
    ndp_gemm_shape good = {4, 5, 6, 6, 5, 5, false, false, NDP_F32, NDP_F32, NDP_F32, false, 1, false, false};
    require_ok(ndp_gemm_plan(&good, &plan));
    for (int i = 0; i < 6; i++) {
        ndp_gemm_shape s = good;
        if (i == 0)
            s.m = 0;
        if (i == 1)
            s.lda = 5;
        if (i == 2)
            s.ldc = 4;
        if (i == 3)
            s.trans_b = true; /* then a row of B has 6 elements */
        if (i == 4)
            s.c = NDP_BF16; /* of two fp32 operands */
        if (i == 5)
            s.threads = 0;
        assert_int_equal(ndp_gemm_plan(&s, &plan), NDP_EBUG);
        assert_non_null(strstr(ndp_error_message(), "gemm"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fp32_products),      cmocka_unit_test(bf16_products),
        cmocka_unit_test(long_bf16_products), cmocka_unit_test(large_results),
        cmocka_unit_test(sums_are_wide),      cmocka_unit_test(special_values),
        cmocka_unit_test(plans_are_shared),   cmocka_unit_test(bad_shapes_are_refused),
    };
    return end_of_ops(cmocka_run_group_tests(tests, NULL, NULL));
}
