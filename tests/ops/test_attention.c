/* Attention: the reference against finite differences, the kernels of the device under test (NDP_TEST_DEVICE), on cpu
 * of every instruction set, against the reference.
 */
#include "attention_problem.h"

/* --- comparisons --- */

static void copy(const ndp_view *to, const ndp_view *from) {
    for (int64_t r = 0; r < to->rows; r++)
        for (int64_t c = 0; c < to->cols; c++)
            ndp_view_set(to, r, c, ndp_view_get(from, r, c));
}

/* Largest difference beyond what is allowed to each element, in units of the reference's largest element (or of 1, the
 * size of the inputs: a gradient that is truly zero, that of a single key, is left with rounding); infinities must
 * agree, NaN never does. */
static double farthest(const ndp_view *got, const ndp_view *want, const ndp_view *allowed) {
    double worst = 0, largest = 1;
    for (int64_t r = 0; r < want->rows; r++)
        for (int64_t c = 0; c < want->cols; c++) {
            double g = ndp_view_get(got, r, c), w = ndp_view_get(want, r, c);
            if (g == w && isinf(w))
                continue;
            if (!isfinite(g) || !isfinite(w))
                return INFINITY;
            worst = fmax(worst, fabs(g - w) - (allowed ? ndp_view_get(allowed, r, c) : 0));
            largest = fmax(largest, fabs(w));
        }
    return worst / largest;
}

static void assert_near(const problem *got, const problem *want, int tensor, double limit, const problem *allowed,
                        const spec *x) {
    static const char *const names[TENSORS] = {
        [O] = "o", [LSE] = "lse", [DQ] = "dq", [DK] = "dk", [DV] = "dv", [DSINK] = "dsink"};
    double d = farthest(&got->v[tensor], &want->v[tensor], allowed ? &allowed->v[tensor] : NULL);
    if (!(d <= limit))
        fail_msg(
            "%s is off by %.3g (limit %.3g): T %lld S %lld H %d KV %d D %d V %d window %d pattern %d %s NDP_ISA %s",
            names[tensor], d, limit, (long long)x->t, (long long)x->s, x->heads, x->kv_heads, q_dim(x), v_dim(x),
            x->window, (int)x->pattern, ndp_dtype_name(x->dtype), getenv("NDP_ISA"));
    for (int64_t r = 0; r < got->v[tensor].rows; r++)
        for (int64_t c = got->v[tensor].cols; c < got->v[tensor].ld; c++)
            assert_true(ndp_view_get(&got->v[tensor], r, c) == GUARD_VALUE);
}

/* Of devices but the cpu: the norm of the difference, in units of the reference's norm, or of that of elements of 1/4
 * each: a gradient that is truly zero is left with rounding. */
static void assert_near_in_norm(const problem *got, const problem *want, int tensor, const spec *x) {
    double limit = x->dtype == NDP_F32 ? 2e-6 : tensor == O ? 6e-3 : 1.2e-2, diff = 0, norm = 0;
    const ndp_view *g = &got->v[tensor], *w = &want->v[tensor];
    for (int64_t r = 0; r < w->rows; r++)
        for (int64_t c = 0; c < w->cols; c++) {
            diff += pow(ndp_view_get(g, r, c) - ndp_view_get(w, r, c), 2);
            norm += pow(ndp_view_get(w, r, c), 2);
        }
    double d = sqrt(diff / fmax(norm, (double)(w->rows * w->cols) / 16));
    if (!(d <= limit))
        fail_msg("tensor %d is off by %.3g of its norm (limit %.3g): T %lld S %lld H %d KV %d D %d V %d window %d "
                 "pattern %d %s",
                 tensor, d, limit, (long long)x->t, (long long)x->s, x->heads, x->kv_heads, q_dim(x), v_dim(x),
                 x->window, (int)x->pattern, ndp_dtype_name(x->dtype));
}

/* The reference in fp64 on the operands of `p`, whose o and lse become the reference's, rounded. */
static problem reference(const problem *p, const spec *x) {
    spec wide = *x;
    wide.dtype = NDP_F64;
    problem ref = setup(&wide);
    for (int t = 0; t < TENSORS; t++)
        if (t <= V || t == D_O || t == SINK)
            copy(&ref.v[t], &p->v[t]);
    run_forward(&ref, &ndp_device_ref, 1);
    copy(&p->v[O], &ref.v[O]);
    copy(&p->v[LSE], &ref.v[LSE]);
    copy(&ref.v[O], &p->v[O]); /* the backward starts from what is stored */
    run_backward(&ref, &ndp_device_ref, 1);
    run_forward(&ref, &ndp_device_ref, 1);
    return ref;
}

/* What each element of o, dq, dk, dv may be off by when every weight and every gradient of a score is rounded to bf16,
 * by 2^-8 of itself at most: 2^-8 of the same sum over absolute values. */
static problem rounding(const problem *ref, const spec *x) {
    spec wide = *x;
    wide.dtype = NDP_F64;
    problem sum = setup(&wide);
    for (int t = O; t < TENSORS; t++)
        for (int64_t r = 0; r < sum.v[t].rows; r++)
            for (int64_t c = 0; c < sum.v[t].cols; c++)
                ndp_view_set(&sum.v[t], r, c, 0);
    for (int64_t t = 0; t < x->t; t++) {
        double pos = ndp_view_get(&ref->v[Q_POS], t, 0), low = ndp_view_get(&ref->v[Q_LOW], t, 0);
        low = x->window > 0 ? fmax(low, pos - x->window + 1) : low;
        for (int64_t s = 0; s < x->s; s++) {
            double key = ndp_view_get(&ref->v[K_POS], s, 0);
            for (int h = 0; h < x->heads && low <= key && key <= pos; h++)
                add_absolute(ref, t, h, s, 0x1p-8, &sum);
        }
    }
    return sum;
}

/* The kernels against the reference, on the same (rounded) inputs; the backward also on the same o and lse. */
static void check_kernels(const spec *whole) {
    const spec sizes = small(*whole), *x = &sizes;
    /* fp32: measured at most 1.2e-6; bf16: half a unit in the last place */
    double limit = x->dtype == NDP_BF16 ? 0x1p-8 + 1e-5 : 3e-6;
    static int turn;
    problem given = setup(x), want = reference(&given, x), rounded = {0};
    if (x->dtype == NDP_BF16)
        rounded = rounding(&want, x);
    for (int i = 0; i < 2 * sets(); i++, turn++) {
        use_set(i / 2);
        problem got = setup(x), *allowed = x->dtype == NDP_BF16 && multiplies_bf16() ? &rounded : NULL;
        got.split_sums = on_cpu() ? i % (NDP_SPLITS + 1) : i % 2 * (1 + turn / 2 % NDP_SPLITS);
        run_forward(&got, tested(), 2);
        assert_near(&got, &want, O, limit, allowed, x);
        assert_near(&got, &want, LSE, 1e-6, NULL, x);
        if (!on_cpu())
            assert_near_in_norm(&got, &want, O, x);
        copy(&got.v[O], &given.v[O]);
        copy(&got.v[LSE], &given.v[LSE]);
        run_backward(&got, tested(), 2);
        for (int t = DQ; t <= DV; t++) {
            assert_near(&got, &want, t, limit, allowed, x);
            if (!on_cpu())
                assert_near_in_norm(&got, &want, t, x);
        }
        if (has_sinks(x)) /* a sum of fp32 in any type */
            assert_near(&got, &want, DSINK, 3e-6, NULL, x);
        teardown(&got);
    }
    teardown(&rounded);
    teardown(&want);
    teardown(&given);
}

/* --- tests --- */

static double loss(const problem *p) {
    double sum = 0;
    run_forward(p, &ndp_device_ref, 1);
    for (int64_t r = 0; r < p->v[O].rows; r++)
        for (int64_t c = 0; c < p->v[O].cols; c++)
            sum += ndp_view_get(&p->v[O], r, c) * ndp_view_get(&p->v[D_O], r, c);
    return sum;
}

/* Central differences in every element of `input` against the gradient tensor. */
static void check_differences(const problem *p, int input, int gradient) {
    const ndp_view *x = &p->v[input];
    double h = 1e-5;
    for (int64_t r = 0; r < x->rows; r++)
        for (int64_t c = 0; c < x->cols; c++) {
            double x0 = ndp_view_get(x, r, c), up, down;
            ndp_view_set(x, r, c, x0 + h);
            up = loss(p);
            ndp_view_set(x, r, c, x0 - h);
            down = loss(p);
            ndp_view_set(x, r, c, x0);
            assert_true(fabs((up - down) / (2 * h) - ndp_view_get(&p->v[gradient], r, c)) < 1e-8);
        }
}

static void ref_backward_is_the_derivative(void **state) {
    (void)state;
    static const spec cases[] = {{7, 7, 4, 2, 5, 0, DOCUMENTS, NDP_F64, 0},
                                 {13, 13, 3, 1, 3, 4, CAUSAL, NDP_F64, 0},
                                 {9, 11, 2, 2, 4, 3, ZIGZAG, NDP_F64, 0},
                                 {5, 17, 6, 2, 3, 0, DECODE, NDP_F64, 0},
                                 {11, 9, 2, 1, 3, 30, ANYWHERE, NDP_F64, 0},
                                 {9, 11, 4, 2, 3, 5, DOCUMENTS, NDP_F64, 0.7},
                                 {9, 9, 4, 2, 5, 4, WITH_SINKS + DOCUMENTS, NDP_F64, 0},
                                 {7, 9, 2, 1, 3, 0, WITH_SINKS + ANYWHERE, NDP_F64, 0.7},
                                 {7, 9, 4, 2, 5 + 3 * VALUES, 4, WITH_SINKS + DOCUMENTS, NDP_F64, 0.7},
                                 {9, 11, 2, 2, 3 + 7 * VALUES, 0, ANYWHERE, NDP_F64, 0}};
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        problem p = setup(&cases[i]);
        run_forward(&p, &ndp_device_ref, 1);
        run_backward(&p, &ndp_device_ref, 1);
        for (int k = 0; k < 3; k++)
            check_differences(&p, Q + k, DQ + k);
        if (has_sinks(&cases[i]))
            check_differences(&p, SINK, DSINK);
        teardown(&p);
    }
}

/* Every head dimension with every length; patterns, windows and groups take turns. */
static void kernels_equal_ref(void **state) {
    (void)state;
    static const int dims[] = {8, 12, 16, 48, 64, 80, 128}, lengths[] = {1, 7, 64, 65, 200, 513};
    static const int heads[][2] = {{3, 1}, {2, 2}, {4, 2}, {1, 1}};
    static const int windows[] = {0, 0, 70, 5};
    for (int d = 0; d < NDP_COUNT(dims); d++)
        for (int t = 0; t < (on_cpu() ? NDP_COUNT(lengths) : 4); t += on_cpu() || d % 2 == 0 ? 1 : 2) {
            int turn = d + 3 * t;
            const int *h = heads[lengths[t] > 500 ? 3 - turn % 2 * 2 : turn % 4];
            spec x = {lengths[t],
                      lengths[t],
                      h[0],
                      h[1],
                      dims[d],
                      windows[turn % 3],
                      (pattern)(turn % PATTERNS),
                      turn % 2 ? NDP_F32 : NDP_BF16,
                      0};
            check_kernels(&x);
        }
}

static void kernels_equal_ref_where_shapes_differ(void **state) {
    (void)state;
    static const spec cases[] = {
        {1, 200, 9, 3, 64, 0, DECODE, NDP_F32, 0},        {1, 1, 9, 3, 64, 0, DECODE, NDP_BF16, 0},
        {16, 300, 6, 6, 48, 0, DECODE, NDP_F32, 0},       {33, 257, 4, 1, 64, 40, DECODE, NDP_BF16, 0},
        {65, 131, 2, 1, 64, 0, ZIGZAG, NDP_F32, 0},       {200, 90, 4, 2, 16, 64, ZIGZAG, NDP_F32, 0},
        {150, 70, 3, 1, 64, 0, ANYWHERE, NDP_F32, 0},     {70, 150, 2, 2, 20, 9, ANYWHERE, NDP_BF16, 0},
        {700, 700, 3, 1, 8, 64, DOCUMENTS, NDP_F32, 0},   {60, 60, 2, 1, 256, 0, CAUSAL, NDP_F32, 0},
        {450, 450, 10, 2, 24, 0, DOCUMENTS, NDP_BF16, 0}, {450, 450, 10, 2, 32, 0, DOCUMENTS, NDP_F32, 0},
        {40, 40, 2, 1, 1, 0, DOCUMENTS, NDP_F32, 0},      {100, 100, 40, 1, 24, 0, CAUSAL, NDP_BF16, 0}};
    for (int i = 0; i < NDP_COUNT(cases); i++)
        if (on_cpu() || cases[i].t * cases[i].s * cases[i].heads < 60000)
            check_kernels(&cases[i]);
}

/* Both types at every head dimension that kernels are compiled for and at odd ones; GQA of 1, 2 and 8. */
static void kernels_equal_ref_at_every_head_dimension(void **state) {
    (void)state;
    static const int dims[] = {1, 20, 32, 64, 80, 96, 128, 160, 192, 256}, heads[][2] = {{2, 2}, {4, 2}, {8, 1}};
    for (int i = 0; i < 2 * NDP_COUNT(dims); i++) {
        int d = i / 2;
        spec x = {on_cpu() ? 71 : 37,         83, heads[d % 3][0], heads[d % 3][1], dims[d], i % 4 * 9, ANYWHERE,
                  i % 2 ? NDP_F32 : NDP_BF16, 0};
        x.pattern = (pattern)(d % PATTERNS);
        check_kernels(&x);
    }
}

/* Values with fewer columns than keys, and with more: 192 and 128 are DeepSeek-V3's. */
static void kernels_equal_ref_where_values_are_of_another_width(void **state) {
    (void)state;
    static const int dims[][2] = {{192, 128}, {24, 16}, {12, 8}, {20, 33}, {16, 24}, {80, 130}, {1, 5}, {256, 200}};
    for (int i = 0; i < 2 * NDP_COUNT(dims); i++) {
        int d = i / 2;
        spec x = {on_cpu() ? 131 : 37,
                  83 + 50 * (d % 2),
                  4,
                  4 >> d % 3,
                  dims[d][0] + VALUES * dims[d][1],
                  i % 4 * 9,
                  (pattern)(d % PATTERNS + (d % 4 == 3 ? WITH_SINKS : 0)),
                  i % 2 ? NDP_F32 : NDP_BF16,
                  d % 3 == 1 ? 2 : 0};
        check_kernels(&x);
    }
}

/* Scores that are capped, nearly not at all and nearly all of them. */
static void capped_scores(void **state) {
    (void)state;
    static const spec cases[] = {
        {70, 70, 4, 2, 16, 0, DOCUMENTS, NDP_F32, 50},    {200, 200, 2, 1, 64, 70, CAUSAL, NDP_F32, 0.5},
        {65, 131, 2, 1, 20, 0, ZIGZAG, NDP_F32, 2},       {100, 100, 3, 3, 48, 9, ANYWHERE, NDP_BF16, 2},
        {130, 130, 4, 2, 32, 0, DOCUMENTS, NDP_BF16, 50}, {200, 200, 2, 1, 64, 70, CAUSAL, NDP_BF16, 0.5},
        {65, 131, 2, 1, 20, 0, ZIGZAG, NDP_BF16, 2},      {1, 200, 9, 3, 64, 0, DECODE, NDP_BF16, 0.5}};
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        spec x = sized(cases[i]);
        check_kernels(&x);
    }
}

/* Scores without a key or a value: of a decoded token, with a cap, with a window, of rows that see nothing. */
static void sinks(void **state) {
    (void)state;
    static const spec cases[] = {{70, 70, 4, 2, 16, 0, WITH_SINKS + DOCUMENTS, NDP_F32, 0},
                                 {200, 200, 8, 1, 64, 70, WITH_SINKS + CAUSAL, NDP_F32, 0.5},
                                 {65, 131, 2, 1, 20, 0, WITH_SINKS + ZIGZAG, NDP_F32, 0},
                                 {150, 70, 6, 3, 40, 9, WITH_SINKS + ANYWHERE, NDP_F32, 0},
                                 {100, 100, 3, 3, 48, 9, WITH_SINKS + ANYWHERE, NDP_BF16, 0},
                                 {200, 200, 8, 1, 64, 70, WITH_SINKS + CAUSAL, NDP_BF16, 0},
                                 {65, 131, 2, 1, 160, 0, WITH_SINKS + ZIGZAG, NDP_BF16, 2},
                                 {1, 200, 9, 3, 64, 0, WITH_SINKS + DECODE, NDP_BF16, 0}};
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        spec x = sized(cases[i]);
        check_kernels(&x);
    }
}

/* A sink of -inf changes no bit of the result. */
static void sinks_of_nothing(void **state) {
    (void)state;
    for (int i = 0; i < 2 * sets(); i++) {
        use_set(i / 2);
        spec x = {70, 70, 4, 2, 16, 0, WITH_SINKS + ANYWHERE, i % 2 ? NDP_BF16 : NDP_F32, 0};
        problem p = setup(&x), none = setup(&x);
        for (int64_t h = 0; h < p.v[SINK].cols; h++)
            ndp_view_set(&p.v[SINK], 0, h, -INFINITY);
        free(none.v[SINK].data);
        none.v[SINK] = (ndp_view){0};
        run_forward(&p, tested(), 2);
        run_forward(&none, tested(), 2);
        assert_true(farthest(&p.v[O], &none.v[O], NULL) == 0 && farthest(&p.v[LSE], &none.v[LSE], NULL) == 0);
        teardown(&p);
        teardown(&none);
    }
}

/* Rows that see nothing: o = 0, lse = -inf, no gradient, and none from them. */
static void rows_that_see_nothing(void **state) {
    (void)state;
    for (int i = 0; i < 2 * sets(); i++) {
        use_set(i / 2);
        spec x = {70, 70, 2, 1, 16, 0, CAUSAL, i % 2 ? NDP_BF16 : NDP_F32, 0};
        problem p = setup(&x);
        for (int64_t t = 0; t < x.t; t++)
            ndp_view_set(&p.v[Q_LOW], t, 0, t == 68 ? 0 : 1000);
        run_forward(&p, tested(), 2);
        run_backward(&p, tested(), 2);
        for (int64_t t = 0; t < x.t; t++)
            for (int64_t c = 0; c < 32; c++) {
                assert_int_equal(ndp_view_get(&p.v[O], t, c) == 0, t != 68);
                assert_int_equal(ndp_view_get(&p.v[DQ], t, c) == 0, t != 68);
                assert_int_equal(isinf(ndp_view_get(&p.v[LSE], t, c / 16)) != 0, t != 68);
                assert_int_equal(ndp_view_get(&p.v[DV], t, c % 16) == 0, t > 68);
            }
        teardown(&p);
    }
}

/* The positions of a block of keys reach across what its rows see, and none lies within. */
static void keys_on_both_sides_are_not_seen(void **state) {
    (void)state;
    for (int i = 0; i < 2 * sets(); i++) {
        use_set(i / 2);
        spec x = {70, 70, 2, 1, 16, 0, CAUSAL, i % 2 ? NDP_BF16 : NDP_F32, 0};
        problem p = setup(&x);
        for (int64_t t = 0; t < x.t; t++) {
            ndp_view_set(&p.v[Q_LOW], t, 0, 400);
            ndp_view_set(&p.v[Q_POS], t, 0, 500);
            ndp_view_set(&p.v[K_POS], t, 0, t % 2 ? 1000 : 0);
        }
        run_forward(&p, tested(), 2);
        run_backward(&p, tested(), 2);
        for (int64_t t = 0; t < x.t; t++)
            for (int64_t c = 0; c < 32; c++)
                assert_true(ndp_view_get(&p.v[O], t, c) == 0 && ndp_view_get(&p.v[DQ], t, c) == 0 &&
                            ndp_view_get(&p.v[DK], t, c % 16) == 0 && ndp_view_get(&p.v[DV], t, c % 16) == 0);
        teardown(&p);
    }
}

/* A cache holds anything after the last token. */
static void keys_that_no_query_sees_may_be_nan(void **state) {
    (void)state;
    for (int i = 0; i < 2 * sets(); i++) {
        use_set(i / 2);
        spec x = {3, 90, 2, 1, 20, 0, CAUSAL, i % 2 ? NDP_BF16 : NDP_F32, 0};
        problem clean = setup(&x), p = setup(&x);
        for (int64_t s = 3; s < x.s; s++)
            for (int64_t c = 0; c < x.dim; c++) {
                ndp_view_set(&p.v[K], s, c, NAN);
                ndp_view_set(&p.v[V], s, c, NAN);
            }
        run_forward(&clean, tested(), 1);
        run_forward(&p, tested(), 1);
        assert_true(farthest(&p.v[O], &clean.v[O], NULL) == 0 && farthest(&p.v[LSE], &clean.v[LSE], NULL) == 0);
        teardown(&clean);
        teardown(&p);
    }
}

static void nan_is_not_hidden(void **state) {
    (void)state;
    for (int i = 0; i < 2 * sets(); i++) {
        use_set(i / 2);
        spec x = {80, 80, 2, 1, 16, 0, CAUSAL, i % 2 ? NDP_BF16 : NDP_F32, 0};
        problem p = setup(&x);
        ndp_view_set(&p.v[K], 70, 3, NAN);
        run_forward(&p, tested(), 1);
        for (int64_t t = 0; t < x.t; t++)
            assert_int_equal(isnan(ndp_view_get(&p.v[O], t, 5)) != 0, t >= 70);
        teardown(&p);
    }
}

static bool same_bits(const ndp_view *a, const ndp_view *b) {
    return memcmp(a->data, b->data, (size_t)(a->rows * a->ld) * ndp_dtype_size(a->dtype)) == 0;
}

static void threads_do_not_change_a_bit(void **state) {
    (void)state;
    static const spec cases[] = {{600, 600, 9, 3, 64, 0, CAUSAL, NDP_F32, 0},
                                 {600, 600, 4, 2, 48, 100, DOCUMENTS, NDP_BF16, 0},
                                 {300, 500, 8, 1, 16, 0, ANYWHERE, NDP_F32, 0}};
    for (int i = 0; i < NDP_COUNT(cases) * sets() && on_cpu(); i++) {
        const spec *x = &cases[i / sets()];
        use_set(i % sets());
        problem one = setup(x);
        run_forward(&one, tested(), 1);
        run_backward(&one, tested(), 1);
        for (int threads = 1; threads <= 5; threads++) {
            problem more = setup(x);
            run_forward(&more, tested(), threads);
            run_backward(&more, tested(), threads);
            for (int t = O; t < TENSORS; t++)
                assert_true(same_bits(&more.v[t], &one.v[t]));
            teardown(&more);
        }
        teardown(&one);
    }
}

/* A race between warps, or a wait that is missing, gives other bits when sim runs them the other way round. */
static void check_orders(const spec *whole) {
    const spec x = small(*whole);
    problem up = setup(&x), down = setup(&x);
    for (int k = 0; k < 2; k++) {
        const char *before = getenv("NDP_SIM_ORDER");
        char *kept = before ? strdup(before) : NULL;
        setenv("NDP_SIM_ORDER", k ? "down" : "up", 1);
        run_forward(k ? &down : &up, tested(), 1);
        run_backward(k ? &down : &up, tested(), 1);
        kept ? setenv("NDP_SIM_ORDER", kept, 1) : unsetenv("NDP_SIM_ORDER");
        free(kept);
    }
    for (int t = O; t < TENSORS; t++)
        assert_true(same_bits(&up.v[t], &down.v[t]));
    teardown(&up);
    teardown(&down);
}

static void order_of_warps_changes_no_bit(void **state) {
    (void)state;
    static const spec cases[] = {{70, 150, 4, 2, 64, 0, ANYWHERE, NDP_BF16, 0},
                                 {70, 150, 4, 2, 64, 0, ANYWHERE, NDP_F32, 0},
                                 {150, 150, 2, 1, 20, 90, CAUSAL, NDP_BF16, 3},
                                 {70, 70, 2, 2, 200, 0, DOCUMENTS, NDP_BF16, 0},
                                 {70, 70, 2, 2, 200, 0, DOCUMENTS, NDP_F32, 0}};
    for (int i = 0; i < NDP_COUNT(cases) && !on_cpu(); i++)
        check_orders(&cases[i]);
}

/* Heads whose tiles fill the shared memory of a GPU, or need smaller ones (NDP_SIM_SHARED): several tiles on both
 * sides, the last one cut, and the same bits in both orders of warps. */
static void wide_heads(void **state) {
    (void)state;
    static const spec cases[] = {{40, 70, 2, 1, 256, 0, DOCUMENTS, NDP_BF16, 0},
                                 {40, 70, 2, 1, 256, 0, DOCUMENTS, NDP_F32, 0},
                                 {70, 40, 2, 1, 192, 40, ANYWHERE, NDP_BF16, 3},
                                 {70, 40, 2, 1, 192, 40, ANYWHERE, NDP_F32, 3},
                                 {67, 67, 1, 1, 250, 0, CAUSAL, NDP_BF16, 0}};
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        check_kernels(&cases[i]);
        if (!on_cpu())
            check_orders(&cases[i]);
    }
}

/* q, k and v as columns of one matrix. */
static void columns_of_a_fused_projection(void **state) {
    (void)state;
    for (int i = 0; i < 2 * sets(); i++) {
        spec x = {70, 70, 4, 2, 16, 0, CAUSAL, i % 2 ? NDP_BF16 : NDP_F32, 0};
        use_set(i / 2);
        problem apart = setup(&x), p = setup(&x);
        ndp_view fused = make(x.t, 128, x.dtype), kept[3];
        for (int k = 0, first = 0; k < 3; first += (int)kept[k++].cols) {
            kept[k] = p.v[k];
            p.v[k] = fused, p.v[k].cols = kept[k].cols;
            p.v[k].data = (char *)fused.data + (size_t)first * ndp_dtype_size(x.dtype);
            copy(&p.v[k], &kept[k]);
        }
        run_forward(&apart, tested(), 1);
        run_forward(&p, tested(), 1);
        run_backward(&apart, tested(), 1);
        run_backward(&p, tested(), 1);
        for (int t = O; t < TENSORS; t++)
            assert_true(same_bits(&p.v[t], &apart.v[t]));
        memcpy(p.v, kept, sizeof kept);
        free(fused.data);
        teardown(&p);
        teardown(&apart);
    }
}

/* Not the sums of before, near as they are (check_kernels). Rounding to bf16 may hide it. */
static void split_sums_are_others(void **state) {
    (void)state;
    for (int i = 0; i < 2 * sets(); i++) {
        spec x = small((spec){150, 150, 4, 2, 16, 0, WITH_SINKS + CAUSAL, i % 2 ? NDP_F32 : NDP_BF16, 0});
        use_set(i / 2);
        problem one = setup(&x), split = setup(&x);
        split.split_sums = 1 + i % NDP_SPLITS;
        run_forward(&one, tested(), 1);
        run_forward(&split, tested(), 1);
        run_backward(&one, tested(), 1);
        run_backward(&split, tested(), 1);
        for (int t = O; t < TENSORS; t++)
            if (t == LSE || (x.dtype == NDP_F32 && (t == O || t >= DQ)))
                assert_false(same_bits(&one.v[t], &split.v[t]));
        teardown(&one);
        teardown(&split);
    }
}

/* An absent output changes nothing in the others. */
static void outputs_may_be_absent(void **state) {
    (void)state;
    spec x = small((spec){100, 100, 4, 2, 16, 0, DOCUMENTS, NDP_BF16, 0});
    problem all = setup(&x);
    run_forward(&all, tested(), 2);
    run_backward(&all, tested(), 2);
    for (int gone = O; gone < TENSORS; gone++) {
        if (gone == O || gone == D_O)
            continue;
        problem p = setup(&x);
        ndp_view kept = p.v[gone];
        copy(&p.v[O], &all.v[O]);
        if (gone == LSE) {
            p.v[LSE] = (ndp_view){0};
            run_forward(&p, tested(), 2);
            p.v[LSE] = kept;
            copy(&p.v[LSE], &all.v[LSE]);
        } else {
            copy(&p.v[LSE], &all.v[LSE]);
            p.v[gone] = (ndp_view){0};
            run_backward(&p, tested(), 2);
            p.v[gone] = kept;
            copy(&p.v[gone], &all.v[gone]);
            for (int t = DQ; t <= DV; t++)
                assert_true(same_bits(&p.v[t], &all.v[t]));
        }
        assert_true(same_bits(&p.v[O], &all.v[O]));
        teardown(&p);
    }
    teardown(&all);
}

/* Rows of `p` in fp32 instead of its type, with the same numbers. */
static void widen(problem *p, int tensor) {
    ndp_view wide = make(p->v[tensor].rows, p->v[tensor].cols, NDP_F32);
    copy(&wide, &p->v[tensor]);
    free(p->v[tensor].data);
    p->v[tensor] = wide;
}

static void assert_rounds_to(const ndp_view *wide, const ndp_view *narrow) {
    for (int64_t r = 0; r < wide->rows; r++)
        for (int64_t c = 0; c < wide->cols; c++) {
            uint16_t rounded = ndp_f32_to_bf16(((const float *)wide->data)[r * wide->ld + c]);
            assert_int_equal(rounded, ((const uint16_t *)narrow->data)[r * narrow->ld + c]);
        }
}

/* o, do, dq, dk, dv in fp32 with q, k, v in bf16, all and each alone: the numbers that bf16 ones are rounded from. */
static void wide_with_bf16(void **state) {
    (void)state;
    static const int wide_sets[][6] = {
        {O, D_O, DQ, DK, DV, TENSORS}, {O, TENSORS}, {D_O, TENSORS}, {DQ, TENSORS}, {DK, TENSORS}, {DV, TENSORS}};
    spec x = small(sized((spec){200, 230, 6, 2, 40, 0, DECODE, NDP_BF16, 0}));
    for (int i = 0; i < sets() * NDP_COUNT(wide_sets); i++) {
        const int *set = wide_sets[i / sets()];
        use_set(i % sets());
        problem narrow = setup(&x), wide = setup(&x);
        for (int k = 0; set[k] < TENSORS; k++)
            widen(&wide, set[k]);
        run_forward(&narrow, tested(), 2);
        run_forward(&wide, tested(), 2);
        assert_true(same_bits(&wide.v[LSE], &narrow.v[LSE]));
        if (wide.v[O].dtype == NDP_F32)
            assert_rounds_to(&wide.v[O], &narrow.v[O]);
        copy(&wide.v[O], &narrow.v[O]);
        run_backward(&narrow, tested(), 2);
        run_backward(&wide, tested(), 2);
        for (int t = DQ; t <= DV; t++)
            if (wide.v[t].dtype == NDP_F32)
                assert_rounds_to(&wide.v[t], &narrow.v[t]);
            else
                assert_true(same_bits(&wide.v[t], &narrow.v[t]));
        teardown(&narrow);
        teardown(&wide);
    }
}

/* An fp32 do that bf16 does not hold: kernels that multiply bf16 take it rounded, throughout; others as it is. */
static void wide_gradient_of_o(void **state) {
    (void)state;
    spec x = sized((spec){150, 150, 4, 2, 24, 0, DOCUMENTS, NDP_BF16, 0}), all_wide = x;
    all_wide.dtype = NDP_F64;
    for (int i = 0; i < sets(); i++) {
        use_set(i);
        problem p = setup(&x),
                other =
                    setup(multiplies_bf16() && (!on_cpu() || ndp_cpu_bf16_way() >= NDP_BF16_PAIRS) ? &x : &all_wide);
        for (int t = D_O; t <= DV; t++)
            widen(&p, t);
        fill(&p.v[D_O], 14);
        run_forward(&p, tested(), 1);
        for (int t = Q; t <= D_O; t++)
            copy(&other.v[t], &p.v[t]);
        bool narrow = other.v[Q].dtype == NDP_BF16;
        for (int t = DQ; narrow && t <= DV; t++)
            widen(&other, t);
        run_backward(&p, tested(), 2);
        run_backward(&other, narrow ? tested() : &ndp_device_ref, 2);
        for (int t = DQ; t <= DV; t++)
            if (narrow)
                assert_true(same_bits(&p.v[t], &other.v[t]));
            else
                assert_near(&p, &other, t, 3e-6, NULL, &x);
        teardown(&p);
        teardown(&other);
    }
}

/* Rows [first, first + n) of a tensor; the caller does not own them. */
static ndp_view some_rows(const ndp_view *v, int64_t first, int64_t n) {
    ndp_view part = *v;
    part.data = (char *)v->data + (size_t)(first * v->ld) * ndp_dtype_size(v->dtype);
    part.rows = n;
    return part;
}

static void run_merge(const problem *into, const problem *from, int lse_of, const ndp_device *device, int threads) {
    const ndp_view *a = into->v, *b = from->v;
    ndp_exec exec = exec_of(device, threads, 0);
    ndp_op_call call = {.op = &ndp_op_attention_merge,
                        .attr = &into->attr,
                        .exec = &exec,
                        .in = {a[O], a[LSE], b[O], b[LSE]},
                        .out = {a[O], lse_of ? b[LSE] : a[LSE]}};
    ndp_view out[2] = {{0}};
    assert_int_equal(apply_shape(&ndp_op_attention_merge, &into->attr, call.in, out), NDP_OK);
    assert_true(out[0].cols == a[O].cols && out[1].cols == a[LSE].cols && out[1].dtype == a[LSE].dtype);
    assert_int_equal(device->kernels[NDP_OP_attention_merge]->run(&call), NDP_OK);
}

/* Attention over the keys in two halves, merged, is attention over all; `lse_of`: into which of the two lse. */
static void check_merge(const spec *x, int64_t cut, int lse_of, const ndp_device *device) {
    problem whole = setup(x), half[2] = {setup(x), setup(x)}, one = setup(x);
    ndp_view k = whole.v[K], v = whole.v[V], pos = whole.v[K_POS];
    run_forward(&whole, device, 2);
    for (int i = 0; i < 2; i++) {
        problem part = half[i];
        int64_t first = i ? cut : 0, n = i ? x->s - cut : cut;
        part.v[K] = some_rows(&k, first, n), part.v[V] = some_rows(&v, first, n);
        part.v[K_POS] = some_rows(&pos, first, n);
        run_forward(&part, device, 2);
    }
    copy(&one.v[O], &half[0].v[O]);
    copy(&one.v[LSE], &half[0].v[LSE]);
    run_merge(&half[0], &half[1], lse_of, device, 2);
    if (lse_of) /* half[1]'s is gone */
        copy(&half[0].v[LSE], &half[1].v[LSE]);
    double limit = device == &ndp_device_ref ? 1e-14 : 3e-6;
    assert_near(&half[0], &whole, O, limit, NULL, x);
    assert_near(&half[0], &whole, LSE, limit, NULL, x);
    if (!lse_of && device == &ndp_device_cpu) {
        run_merge(&one, &half[1], 0, device, 1);
        assert_true(same_bits(&one.v[O], &half[0].v[O]) && same_bits(&one.v[LSE], &half[0].v[LSE]));
    }
    problem *all[] = {&whole, &half[0], &half[1], &one};
    for (int i = 0; i < NDP_COUNT(all); i++)
        teardown(all[i]);
}

static void halves_merge(void **state) {
    (void)state;
    static const spec cases[] = {{70, 70, 3, 1, 5, 0, CAUSAL, NDP_F32, 0},
                                 {65, 90, 4, 2, 64, 0, ANYWHERE, NDP_F32, 0},
                                 {33, 33, 2, 2, 17, 4, CAUSAL, NDP_F32, 0},
                                 {1, 40, 9, 3, 16, 0, DECODE, NDP_F32, 0}};
    for (int i = 0; i < NDP_COUNT(cases) * 4; i++) {
        spec x = cases[i / 4], wide = x;
        wide.dtype = NDP_F64;
        use_set(i % sets());
        check_merge(&x, x.s / 2 + 3, i / 2 % 2, &ndp_device_cpu);
        check_merge(&wide, x.s / 2 + 3, i / 2 % 2, &ndp_device_ref);
    }
}

/* Whatever one of them is where it saw nothing: the other; and nothing, where both did not. */
static void merging_rows_that_see_nothing(void **state) {
    (void)state;
    static const spec single = {4, 1, 1, 1, 3, 0, CAUSAL, NDP_F32, 0}, exact = {4, 1, 1, 1, 3, 0, CAUSAL, NDP_F64, 0};
    for (int i = 0; i < 2; i++) {
        const ndp_device *device = i ? &ndp_device_ref : &ndp_device_cpu;
        problem a = setup(i ? &exact : &single), b = setup(i ? &exact : &single);
        for (int64_t t = 0; t < 4; t++) {
            ndp_view_set(&a.v[LSE], t, 0, t & 1 ? -INFINITY : 700);
            ndp_view_set(&b.v[LSE], t, 0, t & 2 ? -INFINITY : -700);
            for (int64_t c = 0; c < 3; c++) {
                ndp_view_set(&a.v[O], t, c, t & 1 ? 0 : 2);
                ndp_view_set(&b.v[O], t, c, t & 2 ? 0 : 3);
            }
        }
        run_merge(&a, &b, 0, device, 1);
        static const double o[4] = {2, 3, 2, 0}, lse[4] = {700, -700, 700, -INFINITY};
        for (int64_t t = 0; t < 4; t++) {
            assert_true(ndp_view_get(&a.v[LSE], t, 0) == lse[t]);
            for (int64_t c = 0; c < 3; c++)
                assert_true(ndp_view_get(&a.v[O], t, c) == o[t]);
        }
        ndp_view_set(&b.v[LSE], 3, 0, NAN); /* is not taken for nothing */
        run_merge(&a, &b, 0, device, 1);
        assert_true(isnan(ndp_view_get(&a.v[O], 3, 0)));
        teardown(&a);
        teardown(&b);
    }
}

static void shapes_that_do_not_fit(void **state) {
    (void)state;
    ndp_op_attr attr = {.heads = 4, .kv_heads = 2, .head_dim = 8};
    ndp_view good[] = {{NULL, NDP_F32, 5, 32, 32}, {NULL, NDP_F32, 6, 16, 16}, {NULL, NDP_F32, 6, 16, 16},
                       {NULL, NDP_I32, 5, 1, 1},   {NULL, NDP_I32, 5, 1, 1},   {NULL, NDP_I32, 6, 1, 1}};
    ndp_view out[2] = {{0}};
    assert_int_equal(apply_shape(&ndp_op_attention, &attr, good, out), NDP_OK);
    assert_int_equal(out[1].cols, 4);
    for (int i = 0; i < NDP_COUNT(good); i++) {
        ndp_view bad[6];
        memcpy(bad, good, sizeof bad);
        bad[i].cols++;
        assert_int_equal(apply_shape(&ndp_op_attention, &attr, bad, out), NDP_EBUG);
        memcpy(bad, good, sizeof bad);
        bad[i].rows++;
        assert_int_equal(apply_shape(&ndp_op_attention, &attr, bad, out), NDP_EBUG);
        memcpy(bad, good, sizeof bad);
        bad[i].dtype = NDP_BF16;
        assert_int_equal(apply_shape(&ndp_op_attention, &attr, bad, out), NDP_EBUG);
    }
    /* o and do may be wide with bf16, dk and dv are with wide_grad */
    ndp_view wide = {NULL, NDP_F32, 5, 32, 32}, narrow = {NULL, NDP_BF16, 5, 32, 32}, kv = {NULL, NDP_BF16, 6, 16, 16};
    ndp_view lse = {NULL, NDP_F32, 5, 4, 4}, grads[3] = {{0}};
    ndp_view bwd[] = {wide, narrow, kv, kv, wide, lse, good[3], good[4], good[5]};
    for (int w = 0; w < 2; w++) {
        attr.wide_grad = w;
        assert_int_equal(apply_shape(&ndp_op_attention_bwd, &attr, bwd, grads), NDP_OK);
        assert_true(grads[0].dtype == NDP_BF16 && grads[1].dtype == (w ? NDP_F32 : NDP_BF16) &&
                    grads[2].dtype == grads[1].dtype);
    }
    bwd[0].dtype = NDP_F64;
    assert_int_equal(apply_shape(&ndp_op_attention_bwd, &attr, bwd, grads), NDP_EBUG);
    attr.kv_heads = 3;
    assert_int_equal(apply_shape(&ndp_op_attention, &attr, good, out), NDP_EBUG);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ref_backward_is_the_derivative),
        cmocka_unit_test(kernels_equal_ref),
        cmocka_unit_test(kernels_equal_ref_where_shapes_differ),
        cmocka_unit_test(kernels_equal_ref_at_every_head_dimension),
        cmocka_unit_test(capped_scores),
        cmocka_unit_test(sinks),
        cmocka_unit_test(sinks_of_nothing),
        cmocka_unit_test(rows_that_see_nothing),
        cmocka_unit_test(keys_on_both_sides_are_not_seen),
        cmocka_unit_test(keys_that_no_query_sees_may_be_nan),
        cmocka_unit_test(nan_is_not_hidden),
        cmocka_unit_test(threads_do_not_change_a_bit),
        cmocka_unit_test(order_of_warps_changes_no_bit),
        cmocka_unit_test(wide_heads),
        cmocka_unit_test(columns_of_a_fused_projection),
        cmocka_unit_test(kernels_equal_ref_where_values_are_of_another_width),
        cmocka_unit_test(split_sums_are_others),
        cmocka_unit_test(outputs_may_be_absent),
        cmocka_unit_test(wide_with_bf16),
        cmocka_unit_test(wide_gradient_of_o),
        cmocka_unit_test(halves_merge),
        cmocka_unit_test(merging_rows_that_see_nothing),
        cmocka_unit_test(shapes_that_do_not_fit),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return end_of_ops(cmocka_run_group_tests(tests, NULL, NULL));
}
