/* Every kernel of `cpu`, or of NDP_TEST_DEVICE, against ref: fp32 and bf16, odd sizes, padded rows, sums split or not,
 * accumulation, absent operands, outputs that were NaN. `cpu`: 1 to 3 threads with equal bits. Other devices: twice
 * with equal bits, `sim` once in each order. */
#include "expert_cases.h"

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
        kernel_case slice = {&ndp_op_embedding, {.first = 4}, .in = {random_ints(t, 0, 11, 1), some(5, c, 2)}};
        kernel_case slice_dw = {&ndp_op_embedding_dw,
                                {.accumulate = accumulate, .first = 4},
                                .in = {random_ints(t, 0, 11, 1), some(t, c, 2)},
                                .out_rows = 5};
        check_kernel(&slice);
        check_kernel(&slice_dw);
    }
}

/* fp32 sums of an id's rows in their order: another order has other bits, and the bounds above would not see it. */
static void embedding_dw_adds_rows_in_order(void **state) {
    (void)state;
    enum { ROWS = 61, COLS = 21, IDS = 3 };
    ndp_view in[] = {random_ints(ROWS, 0, IDS, 1), some(ROWS, COLS, 2)};
    ndp_view out[NDP_OP_MAX_OUT] = {matrix(NDP_F32, IDS, COLS)}, sums = matrix(NDP_F32, IDS, COLS);
    for (int64_t t = 0; t < ROWS; t++)
        for (int64_t c = 0, id = (int64_t)ndp_view_get(&in[0], t, 0); c < COLS; c++)
            ndp_view_set(&sums, id, c, (float)ndp_view_get(&sums, id, c) + (float)ndp_view_get(&in[1], t, c));
    run_op(&ndp_op_embedding_dw, &(ndp_op_attr){0}, in, out, tested(), 1);
    assert_true(same_bits(&out[0], &sums));
    free_matrices(in, 2);
    free_matrices(out, 1);
    free_matrices(&sums, 1);
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

/* Products of bf16 stored as fp32: y where its destination says so, dx and what it is added to by attr.wide_grad; and
 * the gradients of such a y. */
static void linear_kernels_wide(void **state) {
    (void)state;
    FOR_SIZES(t, c) for (int more = 0; more < 2; more++) {
        kernel_case forward = {&ndp_op_linear,
                               .in = {some(t, 33, 1), some(c, 33, 2), more ? some(1, c, 3) : (ndp_view){0}}, .asked = 1,
                               .other = 1};
        kernel_case dx = {&ndp_op_linear_dx,
                          {.wide_grad = true},
                          .wide = 4,
                          .in = {some(t, c, 1), some(c, 33, 2), more ? some(t, 33, 3) : (ndp_view){0}}};
        kernel_case dx_of_wide = {&ndp_op_linear_dx, .wide = 1,
                                  .in = {some(t, c, 1), some(c, 33, 2), more ? some(t, 33, 3) : (ndp_view){0}}};
        kernel_case dw_of_wide = {
            &ndp_op_linear_dw, {.accumulate = more}, .wide = 1, .in = {some(t, c, 1), some(t, 33, 2)}};
        check_types(&forward, false, true);
        check_kernel(&dx);
        check_types(&dx_of_wide, false, true);
        check_types(&dw_of_wide, false, true);
    }
}

/* The earlier gradient may already be in the output. */
static void linear_dx_in_place(void **state) {
    (void)state;
    ndp_view in[3] = {some(5, 7, 1), some(7, 9, 2), some(5, 9, 3)}, out[1], apart[1] = {matrix(NDP_F32, 5, 9)};
    run_op(&ndp_op_linear_dx, &(ndp_op_attr){0}, in, apart, tested(), 2);
    out[0] = in[2];
    run_op(&ndp_op_linear_dx, &(ndp_op_attr){0}, in, out, tested(), 2);
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

/* Runs of columns that are normed by themselves. */
static void rmsnorm_of_heads_kernels(void **state) {
    (void)state;
    FOR_SIZES(t, c) for (int more = 0; more < 2; more++) {
        ndp_op_attr attr = {.eps = 1e-5, .unit_offset = more, .accumulate = more};
        ndp_view rstd = matrix(NDP_F32, t, 3), rstd_dw = matrix(NDP_F32, t, 3);
        for (int64_t i = 0; i < 3 * t; i++) {
            ndp_view_set(&rstd, i / 3, i % 3, 0.5 + (double)(i % 7) / 5);
            ndp_view_set(&rstd_dw, i / 3, i % 3, 0.5 + (double)(i % 5) / 5);
        }
        kernel_case forward = {&ndp_op_rmsnorm, attr, .in = {some(t, 3 * c, 1), some(1, c, 2)}};
        kernel_case dx = {&ndp_op_rmsnorm_dx, attr, .wide = 8,
                          .in = {some(t, 3 * c, 1), some(t, 3 * c, 2), some(1, c, 3), rstd,
                                 more ? some(t, 3 * c, 4) : (ndp_view){0}}};
        kernel_case dw = {&ndp_op_rmsnorm_dw, attr, .wide = 4, .in = {some(t, 3 * c, 1), some(t, 3 * c, 2), rstd_dw}};
        check_kernel(&forward);
        check_kernel(&dx);
        check_kernel(&dw);
    }
}

/* norm_by_dx gets a weight above 0 and dy = x, so that the terms of dm, one number a row, do not cancel. */
static void halves_of_rmsnorm_kernels(void **state) {
    (void)state;
    FOR_SIZES(t, c) for (int more = 0; more < 2; more++) {
        ndp_op_attr attr = {.eps = 1e-5, .unit_offset = more, .scale = 0.3};
        ndp_view positive = matrix(NDP_F32, 1, c);
        for (int64_t i = 0; i < c; i++)
            ndp_view_set(&positive, 0, i, 0.5 + (double)(i % 7) / 5);
        kernel_case squares = {&ndp_op_mean_squares, attr, .in = {some(t, c, 1)}};
        kernel_case squares_dx = {&ndp_op_mean_squares_dx, attr, .wide = c % 2 ? 1 : 5,
                                  .in = {some(t, 1, 1), some(t, c, 2), more ? some(t, c, 3) : (ndp_view){0}}};
        kernel_case norm = {&ndp_op_norm_by, attr, .wide = 4, .in = {some(t, c, 1), some(1, c, 2), some_rstd(t)}};
        kernel_case norm_dx = {&ndp_op_norm_by_dx, attr, .wide = 8,
                               .in = {some(t, c, 2), some(t, c, 2), positive, some_rstd(t)}, .asked = more ? 3 : 1};
        check_kernel(&squares);
        check_kernel(&squares_dx);
        check_kernel(&norm);
        check_kernel(&norm_dx);
    }
}

/* Squares of lengths, above 0. */
static ndp_view some_squares(int64_t n) {
    ndp_view v = some_rstd(n);
    for (int64_t i = 0; i < n; i++)
        ndp_view_set(&v, i, 0, 0.3 + (double)(i % 11) / 4);
    return v;
}

/* Ranks below and above the columns of a vector; columns of u before and after those that are scaled. A gradient
 * of one number gets dy = u, so that its terms do not cancel. */
static void dora_kernels(void **state) {
    (void)state;
    FOR_SIZES(t, c) for (int more = 0; more < 2; more++) {
        ndp_op_attr attr = {.first = 3 * more, .scale = 0.7}, adding = {.first = 3 * more, .accumulate = more};
        int64_t r = more ? 9 : 1, cols = c + 5 * more;
        kernel_case squares = {&ndp_op_dora_squares, attr, .in = {some(t, c, 1), some(r, c, 2), some(t, r, 3)}};
        kernel_case scaled = {&ndp_op_dora, attr, .wide = 4, .in = {some(t, cols, 1), some(1, c, 2), some_squares(c)}};
        kernel_case dm = {&ndp_op_dora_dm, adding, .wide = 4,
                          .in = {some(t, cols, c > 1 ? 1 : 2), some(t, cols, 2), some_squares(c)}};
        check_kernel(&squares);
        check_kernel(&scaled);
        check_kernel(&dm);
    }
}

/* Mean and rstd of rows. */
static ndp_view some_stats_of_rows(int64_t t) {
    ndp_view v = matrix(NDP_F32, t, 2);
    for (int64_t i = 0; i < t; i++) {
        ndp_view_set(&v, i, 0, (double)(i % 5) / 8 - 0.25);
        ndp_view_set(&v, i, 1, 0.5 + (double)(i % 7) / 5);
    }
    return v;
}

/* Not of one column: there all that is left of x less its mean is rounding. */
static void layernorm_kernels(void **state) {
    (void)state;
    FOR_SIZES(t, c) for (int more = 0; c > 1 && more < 2; more++) {
        ndp_op_attr attr = {.eps = 1e-2, .accumulate = more};
        kernel_case forward = {&ndp_op_layernorm, attr,
                               .in = {some(t, c, 1), some(1, c, 2), more ? some(1, c, 3) : (ndp_view){0}}};
        kernel_case dx = {&ndp_op_layernorm_dx, attr, .wide = 8,
                          .in = {some(t, c, 1), some(t, c, 2), some(1, c, 3), some_stats_of_rows(t),
                                 more ? some(t, c, 4) : (ndp_view){0}}};
        kernel_case dw = {&ndp_op_layernorm_dw, attr, .wide = 4,
                          .in = {some(t, c, 1), some(t, c, 2), some_stats_of_rows(t)}};
        check_kernel(&forward);
        check_kernel(&dx);
        check_kernel(&dw);
    }
}

/* Rows that a block of threads keeps in one group of columns a thread, in two, and not at all. `cpu` has no such
 * widths, and its kernels for any CPU sum the wider ones less precisely than the bound. */
static void kernels_of_wide_rows(void **state) {
    (void)state;
    for (int i = 0; i < (tested() == &ndp_device_cpu ? 1 : 3); i++) {
        int64_t t = 3, c = (int64_t[]){300, 2100, 8400}[i];
        ndp_op_attr attr = {.eps = 1e-5, .scale = 0.3};
        kernel_case cases[] = {
            {&ndp_op_rmsnorm, attr, .in = {some(t, c, 1), some(1, c, 2)}},
            {&ndp_op_rmsnorm_dx, attr, .wide = 8,
             .in = {some(t, c, 1), some(t, c, 2), some(1, c, 3), some_rstd(t), some(t, c, 4)}},
            {&ndp_op_add_rmsnorm, attr, .in = {some(t, c, 1), some(t, c, 2), some(1, c, 3)}},
            {&ndp_op_mean_squares, attr, .in = {some(t, c, 1)}},
            {&ndp_op_dora_squares, attr, .in = {some(t, c, 1), some(5, c, 2), some(t, 5, 3)}},
            {&ndp_op_norm_by_dx, attr, .wide = 8, .in = {some(t, c, 2), some(t, c, 2), some(1, c, 3), some_rstd(t)},
             .asked = 1},
            {&ndp_op_layernorm, attr, .in = {some(t, c, 1), some(1, c, 2), some(1, c, 3)}},
            {&ndp_op_layernorm_dx, attr, .wide = 8,
             .in = {some(t, c, 1), some(t, c, 2), some(1, c, 3), some_stats_of_rows(t), some(t, c, 4)}}};
        for (int k = 0; k < NDP_COUNT(cases); k++)
            check_kernel(&cases[k]);
    }
}

/* Many rows and several blocks of columns. */
static void sums_of_many_rows(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        int64_t t = (int64_t[]){700, 1500}[i], c = small_sizes() ? 9 : (int64_t[]){601, 16}[i];
        ndp_op_attr attr = {.accumulate = i};
        kernel_case cases[] = {
            {&ndp_op_linear_db, attr, .in = {some(t, c, 1)}},
            {&ndp_op_rmsnorm_dw, attr, .wide = 4, .in = {some(t, c, 1), some(t, c, 2), some_rstd(t)}},
            {&ndp_op_layernorm_dw, attr, .wide = 4, .in = {some(t, c, 1), some(t, c, 2), some_stats_of_rows(t)}},
            {&ndp_op_dora_dm, attr, .wide = 4, .in = {some(t, c, 1), some(t, c, 2), some_squares(c)}},
            {&ndp_op_causal_conv_dw, attr, .in = {some(t, c, 1), some(t, c, 2), random_ints(t, 0, t, 3)},
             .out_rows = 4},
            {&ndp_op_embedding_dw, attr, .in = {random_ints(t, 0, 90, 1), some(t, c, 2)}, .out_rows = 97}};
        for (int k = 0; k < NDP_COUNT(cases); k++)
            check_kernel(&cases[k]);
    }
}

static void rope_kernels(void **state) {
    (void)state;
    FOR_SIZES(t, extra) for (int variant = 0; variant < 4; variant++) {
        int half = (int[]){1, 3, 16, 32}[variant];
        kernel_case k = {
            &ndp_op_rope,
            {.heads = variant > 1 ? 2 : 3, .kv_heads = variant > 1, .head_dim = 2 * half, .inverse = variant & 1},
            .wide = 4,
            .in = {some(t, 6 * half + extra, 1), random_ints(t, 0, 40, 2), some(40, 2 * half, 3)}};
        check_kernel(&k);
        kernel_case part = {
            &ndp_op_rope,
            {.heads = 2, .kv_heads = 1, .head_dim = 2 * half + 3, .rotary_dim = 2 * half, .inverse = variant & 1},
            .wide = 4,
            .in = {some(t, 3 * (2 * half + 3) + extra, 1), random_ints(t, 0, 40, 2), some(40, 2 * half, 3)}};
        check_kernel(&part);
        part.attr.skipped = 2, part.attr.neighbours = true;
        part.in[0] = some(t, 3 * (2 * half + 3) + extra, 1), part.in[1] = random_ints(t, 0, 40, 2);
        part.in[2] = some(40, 2 * half, 3);
        check_kernel(&part);
    }
}

static void latent_keys_kernels(void **state) {
    (void)state;
    FOR_SIZES(t, e) for (int variant = 0; variant < 4; variant++) {
        int heads = 1 + variant, own = (int[]){128, 5, 0, 16}[variant], shared = (int[]){64, 3, 8, 2}[variant],
            d = own + shared;
        ndp_op_attr attr = {
            .heads = heads, .head_dim = d, .rotary_dim = shared, .v_dim = (int)e, .wide_grad = variant & 1};
        kernel_case keys = {&ndp_op_latent_keys, attr, .in = {some(t, heads * (own + e), 1), some(t, shared, 2)}};
        kernel_case bwd = {&ndp_op_latent_keys_bwd, attr, .in = {some(t, heads * d, 1), some(t, heads * e, 2)}};
        check_kernel(&keys);
        check_kernel(&bwd);
    }
}

static void elementwise_kernels(void **state) {
    (void)state;
    FOR_SIZES(t, c) {
        kernel_case forward = {&ndp_op_swiglu, .in = {some(t, 2 * c, 1)}};
        kernel_case backward = {&ndp_op_swiglu_bwd, .in = {some(t, c, 1), some(t, 2 * c, 2)}};
        kernel_case gate = {&ndp_op_geglu, .in = {some(t, 2 * c, 1)}};
        kernel_case gate_bwd = {&ndp_op_geglu_bwd, .in = {some(t, c, 1), some(t, 2 * c, 2)}};
        kernel_case gelu = {&ndp_op_gelu, .in = {some(t, c, 1)}};
        kernel_case gelu_bwd = {&ndp_op_gelu_bwd, .in = {some(t, c, 1), some(t, c, 2)}};
        kernel_case exact = {&ndp_op_gelu_erf, .in = {some(t, c, 1)}};
        kernel_case exact_bwd = {&ndp_op_gelu_erf_bwd, .in = {some(t, c, 1), some(t, c, 2)}};
        check_kernel(&exact);
        check_kernel(&exact_bwd);
        ndp_op_attr clip = {.scale = 1.7, .cap = 0.75};
        kernel_case clipped = {&ndp_op_swiglu_clipped, clip, .in = {some(t, 2 * c, 1)}};
        kernel_case clipped_bwd = {&ndp_op_swiglu_clipped_bwd, clip, .in = {some(t, c, 1), some(t, 2 * c, 2)}};
        check_kernel(&clipped);
        check_kernel(&clipped_bwd);
        kernel_case scale = {&ndp_op_scale, {.scale = 2.3}, .in = {some(t, c, 1)}};
        kernel_case by = {&ndp_op_scale_by, .wide = 2, .in = {some(t, c, 1), some(1, 1, 2)}};
        check_kernel(&by);
        kernel_case cap = {&ndp_op_cap, {.cap = 1.1}, .in = {some(t, c, 1)}};
        check_kernel(&gate);
        check_kernel(&gate_bwd);
        check_kernel(&gelu);
        check_kernel(&gelu_bwd);
        check_kernel(&scale);
        check_kernel(&cap);
        kernel_case sum = {&ndp_op_add, .in = {some(t, c, 1), some(t, c, 2)}};
        kernel_case other = {&ndp_op_add, .in = {some(t, c, 1), some(t, c, 2)}, .other = 1};
        kernel_case bias = {&ndp_op_add_bias, .in = {some(t, c, 1), some(1, c, 2)}};
        kernel_case wide = {&ndp_op_add_bias, .wide = 1, .in = {some(t, c, 1), some(1, c, 2)}};
        kernel_case to_fp32 = {&ndp_op_copy, {.type = NDP_F32}, .in = {some(t, c, 1)}};
        kernel_case to_bf16 = {&ndp_op_copy, {.type = NDP_BF16}, .in = {some(t, c, 1)}};
        check_kernel(&forward);
        check_kernel(&backward);
        check_kernel(&sum);
        check_kernel(&other);
        check_kernel(&bias);
        check_kernel(&wide);
        check_kernel(&to_fp32);
        check_kernel(&to_bf16);
    }
}

static void add_columns_kernel(void **state) {
    (void)state;
    FOR_SIZES(t, c) for (int before = 0; before <= 8; before += 4) for (int after = 0; after < 4; after += 3) {
        kernel_case k = {&ndp_op_add_columns, {.first = before}, .in = {some(t, before + c + after, 1), some(t, c, 2)}};
        check_kernel(&k);
    }
}

/* Which elements are dropped is in test_dropout. */
static void dropout_kernel(void **state) {
    (void)state;
    FOR_SIZES(t, c) for (int first = 0; first < 6; first++) {
        kernel_case k = {&ndp_op_dropout,
                         {.drop = 0.1 + 0.1 * first, .first = first, .tag = first % 3},
                         .in = {some(t, c, 1), random_ints(t, -1000000, 1000000, 2), random_ints(1, 0, 99, 3)}};
        check_kernel(&k);
    }
}

/* Starts are any rows: one after its row hides all. */
static void causal_conv_kernels(void **state) {
    (void)state;
    FOR_SIZES(t, c) for (int taps = 1; taps <= 4; taps += 3) {
        kernel_case forward = {&ndp_op_causal_conv, .in = {some(t, c, 1), some(taps, c, 2), random_ints(t, 0, t, 3)}};
        kernel_case dx = {&ndp_op_causal_conv_dx, .in = {some(t, c, 1), some(taps, c, 2), random_ints(t, 0, t, 3)}};
        kernel_case dw = {&ndp_op_causal_conv_dw,
                          {.accumulate = taps > 1},
                          .in = {some(t, c, 1), some(t, c, 2), random_ints(t, 0, t, 3)},
                          .out_rows = taps};
        dx.in[3] = taps > 1 ? some(t, c, 4) : (ndp_view){0};
        check_kernel(&forward);
        check_kernel(&dx);
        check_kernel(&dw);
    }
}

/* The sum may be either of its operands. */
static void add_in_place(void **state) {
    (void)state;
    for (int i = 0; i < 2 * DEVICES; i++) {
        ndp_view in[NDP_OP_MAX_IN] = {some(7, 37, 1), some(7, 37, 2)}, out[NDP_OP_MAX_OUT] = {in[i % 2]};
        ndp_view before = copy_as(NDP_F32, &in[i % 2]);
        run_op(&ndp_op_add, &(ndp_op_attr){0}, in, out, device_at(i / 2), 2);
        for (int64_t r = 0; r < 7; r++)
            for (int64_t c = 0; c < 37; c++)
                assert_true((float)ndp_view_get(&out[0], r, c) ==
                            (float)(ndp_view_get(&before, r, c) + ndp_view_get(&in[1 - i % 2], r, c)));
        free_matrices(in, 2);
        free_matrices(&before, 1);
    }
}

/* Integers, and counts in fp64, are copied as they are: all rows. */
static void copy_of_other_types(void **state) {
    (void)state;
    for (int d = 0; d < 2 * DEVICES; d++) {
        ndp_op_attr attr = {.type = d < DEVICES ? NDP_I32 : NDP_F64};
        ndp_view in[NDP_OP_MAX_IN] = {d < DEVICES ? random_ints(9, -1000000007, 1000000007, 1)
                                                  : random_matrix(NDP_F64, 3, 5, 1)},
                 out[NDP_OP_MAX_OUT] = {{0}};
        make_outputs(&ndp_op_copy, &attr, in, out, 1);
        run_op(&ndp_op_copy, &attr, in, out, device_at(d % DEVICES), 2);
        assert_true(same_bits(&in[0], &out[0]));
        free_matrices(in, 1);
        free_matrices(out, 1);
    }
}

/* With an earlier gradient, the sum is rounded once. */
static void copy_and_add(void **state) {
    (void)state;
    static const ndp_dtype types[] = {NDP_F32, NDP_BF16};
    for (int d = 0; d < DEVICES; d++)
        for (int i = 0; i < 4; i++) {
            ndp_dtype to = types[i / 2];
            ndp_op_attr attr = {.type = to};
            ndp_view in[NDP_OP_MAX_IN] = {random_matrix(types[i % 2], 7, 37, 1), random_matrix(to, 7, 37, 2)};
            ndp_view out[NDP_OP_MAX_OUT] = {{0}}, rounded = matrix(to, 1, 1);
            make_outputs(&ndp_op_copy, &attr, in, out, 1);
            run_op(&ndp_op_copy, &attr, in, out, device_at(d), 2);
            for (int64_t r = 0; r < 7; r++)
                for (int64_t c = 0; c < 37; c++) {
                    float sum = (float)ndp_view_get(&in[0], r, c) + (float)ndp_view_get(&in[1], r, c);
                    ndp_view_set(&rounded, 0, 0, (double)sum);
                    assert_true(ndp_view_get(&out[0], r, c) == ndp_view_get(&rounded, 0, 0));
                }
            free_matrices(in, 2);
            free_matrices(out, 1);
            free_matrices(&rounded, 1);
        }
}

/* As many parts as heads, fewer, and more; into destinations of either type. */
static void heads_kernels(void **state) {
    (void)state;
    static const int cases[][3] = {{1, 1, 5}, {4, 2, 3}, {6, 3, 64}, {3, 3, 17}, {2, 6, 130}, {1, 4, 300}, {9, 1, 8}};
    for (int i = 0; i < NDP_COUNT(cases); i++)
        for (int64_t t = 1; t <= 65; t += 16)
            for (unsigned other = 0; other < 2; other++) {
                int heads = cases[i][0], parts = cases[i][1], d = cases[i][2];
                int64_t n = heads < parts ? 1 : heads / parts;
                ndp_op_attr attr = {.heads = heads, .head_dim = d, .parts = parts};
                kernel_case split = {&ndp_op_heads_split, attr, .in = {some(t, heads * d, 1)}, .other = other};
                kernel_case merge = {&ndp_op_heads_merge, attr, .in = {some(parts * t, n * d, 2)}, .other = other};
                check_kernel(&split);
                check_kernel(&merge);
            }
}

/* What goes where: three heads of two columns, for one, three and six parts. */
static void heads_by_hand(void **state) {
    (void)state;
    static const struct {
        int parts, n;
        int head[6];
    } cases[] = {{1, 3, {0}}, {3, 1, {0, 1, 2}}, {6, 1, {0, 0, 1, 1, 2, 2}}};
    for (int i = 0; i < NDP_COUNT(cases); i++)
        for (int d = 0; d < DEVICES; d++) {
            ndp_op_attr attr = {.heads = 3, .head_dim = 2, .parts = cases[i].parts};
            ndp_view in[NDP_OP_MAX_IN] = {some(4, 6, 1)}, y[NDP_OP_MAX_OUT] = {{0}}, back[NDP_OP_MAX_OUT] = {{0}};
            make_outputs(&ndp_op_heads_split, &attr, in, y, 1);
            run_op(&ndp_op_heads_split, &attr, in, y, device_at(d), 2);
            assert_true(y[0].rows == 4 * cases[i].parts && y[0].cols == 2 * cases[i].n);
            for (int64_t r = 0; r < y[0].rows; r++)
                for (int64_t j = 0; j < y[0].cols; j++)
                    assert_true(ndp_view_get(&y[0], r, j) == ndp_view_get(&in[0], r % 4, 2 * cases[i].head[r / 4] + j));
            make_outputs(&ndp_op_heads_merge, &attr, y, back, 1);
            run_op(&ndp_op_heads_merge, &attr, y, back, device_at(d), 2);
            for (int64_t t = 0; t < 4; t++)
                for (int64_t j = 0; j < 6; j++)
                    assert_true(ndp_view_get(&back[0], t, j) ==
                                (cases[i].parts == 6 ? 2 : 1) * ndp_view_get(&in[0], t, j));
            free_matrices(in, 1);
            free_matrices(y, 1);
            free_matrices(back, 1);
        }
}

static ndp_view doubles(int64_t rows, double x) { /* x in row 0; others are below 0 too */
    ndp_view v = matrix(NDP_F64, rows, 1);
    for (int64_t r = 0; r < rows; r++)
        ndp_view_set(&v, r, 0, x - 0.11 * (double)(r % 9));
    return v;
}

/* Prime to 32: every switch is met on and off. */
static unsigned xent_step(void) { return (unsigned)short_or_all(5, 1); }

/* Several chunks with a last one of any size, padded vocabulary, ignored labels and whole chunks of them; one scale, or
 * one for each row. */
static void xent_kernels(void **state) {
    (void)state;
    const int64_t rows[] = {1, 3, 255, 257, 600, 600};
    for (int i = 0; i < (small_sizes() ? 2 : NDP_COUNT(rows)); i++)
        for (unsigned variant = (unsigned)i % xent_step(); variant < 32; variant += xent_step()) {
            int64_t t = rows[i], v = variant & 1 ? 100 : 131;
            ndp_view scale = doubles(variant & 16 ? t : 1, 0.37);
            kernel_case k = {&ndp_op_xent,
                             {.vocab = 97, .train = true, .accumulate = variant & 2, .cap = variant & 8 ? 3 : 0},
                             .exact = 8,
                             .in = {some(t, 19, 1), some(v, 19, 2), random_ints(t, -3, 97, 3), scale},
                             .asked = variant & 4 ? (variant & 1 ? 3 : 5) : 7};
            for (int64_t r = 0; r < t; r++)
                if (i == 5 || (i == 4 && r >= 256 && r < 512))
                    ndp_view_set(&k.in[2], r, 0, -100);
            check_kernel(&k);
        }
}

/* More rows than a chunk of any device has. */
static void xent_of_many_rows(void **state) {
    (void)state;
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        kernel_case k = {&ndp_op_xent,
                         {.vocab = 37, .train = true, .accumulate = accumulate},
                         .exact = 8,
                         .in = {some(2600, 11, 1), some(40, 11, 2), random_ints(2600, -3, 37, 3), doubles(1, 0.37)}};
        for (int64_t r = 1300; r < 2000; r++)
            ndp_view_set(&k.in[2], r, 0, -100);
        check_kernel(&k);
    }
}

/* As three slices might have them, of which these are the logits of one. */
static ndp_view some_stats(const ndp_op_attr *attr, const ndp_view *logits, const ndp_view *labels) {
    int64_t t = labels->rows;
    ndp_view stats = some(3 * t, 3, 5);
    for (int64_t r = 0; r < 3 * t; r++) {
        int64_t column = (int64_t)ndp_view_get(labels, r % t, 0) - attr->first;
        bool here = column >= 0 && column < attr->vocab;
        ndp_view_set(&stats, r, 1, 40 + 8 * ndp_view_get(&stats, r, 1));
        ndp_view_set(&stats, r, 2, here && r < t ? ndp_view_get(logits, r, column) : 0);
    }
    return stats;
}

/* The two halves of the head on a slice: no, some and only ignored labels, labels of other slices. */
static void xent_slice_kernels(void **state) {
    (void)state;
    for (int i = 0; i < 6; i += small_sizes() && i == 1 ? 4 : 1)
        for (unsigned variant = (unsigned)i % xent_step(); variant < 32; variant += xent_step()) {
            int64_t t = (int64_t[]){1, 3, 64, 130, 257, 40}[i], v = variant & 1 ? 100 : 131, low = i == 5 ? -9 : -3;
            ndp_op_attr attr = {.vocab = variant & 4 ? 97 : v,
                                .first = 20,
                                .cap = variant & 8 ? 3 : 0,
                                .parts = 3,
                                .train = true,
                                .accumulate = variant & 2,
                                .wide_grad = variant & 1};
            ndp_view labels = random_ints(t, low, i == 5 ? 0 : 200, 3), again = copy_as(NDP_I32, &labels);
            ndp_view slice = some(t, v, 4), stats = some_stats(&attr, &slice, &labels);
            kernel_case logits = {&ndp_op_xent_logits, attr, .anything = i == 5, /* no row has a label */
                                  .in = {some(t, 19, 1), some(v, 19, 2), labels}};
            kernel_case grad = {
                &ndp_op_xent_grad,
                attr,
                .wide = 3,
                .exact = 32,
                .in = {slice, stats, some(t, 19, 1), some(v, 19, 2), again, doubles(variant & 16 ? t : 1, 0.37)},
                .asked = variant & 4 ? (variant & 1 ? 3 : 5) : 7};
            check_kernel(&logits);
            check_kernel(&grad);
        }
}

static void xent_without_training(void **state) {
    (void)state;
    kernel_case k = {&ndp_op_xent,
                     {.vocab = 97},
                     .exact = 8,
                     .asked = 1,
                     .in = {some(300, 19, 1), some(100, 19, 2), random_ints(300, -3, 97, 3), doubles(1, 1)}};
    check_kernel(&k);
}

static void cache_and_sum(void **state) {
    (void)state;
    for (int d = 0; d < DEVICES; d++)
        for (int accumulate = 0; accumulate < 2; accumulate++) {
            ndp_op_attr attr = {.accumulate = accumulate};
            ndp_view in[NDP_OP_MAX_IN] = {some(9, 5, 3), some(2, 5, 1), random_ints(2, 0, 9, 2)};
            ndp_view_set(&in[2], 0, 0, 7); /* rows in any order */
            ndp_view_set(&in[2], 1, 0, 3);
            ndp_view out[NDP_OP_MAX_OUT] = {{0}}, before = copy_as(NDP_F32, &in[0]);
            make_outputs(&ndp_op_kv_append, &attr, in, out, 1);
            run_op(&ndp_op_kv_append, &attr, in, out, device_at(d), 2);
            for (int64_t r = 0; r < 9; r++)
                for (int64_t c = 0; c < 5; c++)
                    assert_true(ndp_view_get(&out[0], r, c) ==
                                (r == 7 || r == 3 ? ndp_view_get(&in[1], r == 3, c) : ndp_view_get(&before, r, c)));
            free_matrices(in, 3);
            free_matrices(&before, 1);

            for (int weighted = 0; weighted < 2; weighted++) {
                ndp_view x[NDP_OP_MAX_IN] = {some(100, 1, 4)}, sum[NDP_OP_MAX_OUT] = {doubles(1, 0.5)};
                if (weighted)
                    x[1] = random_matrix(NDP_F64, 100, 1, 5);
                run_op(&ndp_op_reduce_sum, &attr, x, sum, device_at(d), 2);
                double expected = accumulate ? 0.5 : 0;
                for (int64_t r = 0; r < 100; r++)
                    expected += ndp_view_get(&x[0], r, 0) * (weighted ? ndp_view_get(&x[1], r, 0) : 1);
                assert_true(ndp_view_get(&sum[0], 0, 0) == expected);
                free_matrices(x, 1 + weighted);
                free_matrices(sum, 1);
            }
        }
}

/* Rows that saw nothing on one side, or on both, and lse' in the place of either. */
static void attention_merge_kernel(void **state) {
    (void)state;
    for (int i = 0; i < 12; i++) {
        ndp_view in[2][NDP_OP_MAX_IN], out[2][NDP_OP_MAX_OUT];
        int64_t h = 3, d = (int64_t[]){1, 20, 64, 300}[i / 3];
        for (int on = 0; on < DEVICES; on++) {
            ndp_view v[] = {some(9, h * d, 1), some(9, h, 2), some(9, h * d, 3), some(9, h, 4)};
            for (int64_t t = 0; t < 9; t++)
                for (int side = 1; side < 4; side += 2)
                    if (t & side)
                        ndp_view_set(&v[side], t, t % h, -INFINITY);
            memcpy(in[on], v, sizeof v);
            memset(out[on], 0, sizeof out[on]);
            out[on][1] = i % 3 ? v[2 * (i % 3) - 1] : matrix(NDP_F32, 9, h);
            make_outputs(&ndp_op_attention_merge, &(ndp_op_attr){0}, v, out[on], 3);
            run_op(&ndp_op_attention_merge, &(ndp_op_attr){0}, v, out[on], device_at(on), 2);
        }
        assert_true(distance(&out[0][0], &out[1][0]) < 1e-6);
        for (int64_t k = 0; k < 9 * h; k++) {
            double a = ndp_view_get(&out[0][1], k / h, k % h), b = ndp_view_get(&out[1][1], k / h, k % h);
            assert_true(a == b || fabs(a - b) < 1e-6);
        }
        for (int on = 0; on < DEVICES; on++) {
            if (i % 3 == 0)
                free_matrices(&out[on][1], 1);
            free_matrices(in[on], 4);
        }
    }
}

/* Not the sums of before: every op whose sums layouts split gives other bits, near as they are. */
static void split_sums_are_others(void **state) {
    (void)state;
    enum { T = 130, N = 67 };
    kernel_case cases[] = {
        {&ndp_op_linear, .in = {some(T, N, 1), some(33, N, 2)}},
        {&ndp_op_linear_dx, .in = {some(T, N, 1), some(N, 33, 2)}},
        {&ndp_op_linear_dw, .in = {some(T, N, 1), some(T, 33, 2)}},
        {&ndp_op_linear_db, .in = {some(T, N, 1)}},
        {&ndp_op_rmsnorm, .in = {some(T, 100, 1), some(1, 100, 2)}},
        {&ndp_op_rmsnorm_dw, .wide = 4, .in = {some(T, N, 1), some(T, N, 2), some_rstd(T)}},
        {&ndp_op_layernorm_dw, .wide = 4, .in = {some(T, N, 1), some(T, N, 2), some(T, 2, 3)}},
        {&ndp_op_dora_squares, .attr = {.scale = 1}, .in = {some(T, 100, 1), some(3, 100, 2), some(T, 3, 3)}},
        {&ndp_op_dora_dm, .wide = 4, .in = {some(T, N, 1), some(T, N, 2), some_squares(N)}},
        {&ndp_op_conv_silu_dw, .in = {some(T, N, 1), some(T, N, 2), some(N, 3, 3), matrix(NDP_I32, T, 1)}},
        {&ndp_op_delta_decay_ddt, .wide = 1, .in = {some(T, 3, 1), some(T, 3, 2), some(1, 3, 3), some(1, 3, 4)}},
        {&ndp_op_delta_rule, .attr = {.heads = 2, .kv_heads = 2, .head_dim = 4}, .wide = 8,
         .in = {some(T, 8, 1), some(T, 8, 2), some(T, 8, 3), matrix(NDP_F32, T, 2), some(T, 2, 4), some_starts(T)}},
        {&ndp_op_embedding_dw, .out_rows = 3, .in = {random_ints(T, 0, 3, 1), some(T, N, 1)}}};
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        kernel_case *k = &cases[i];
        ndp_view in[2][NDP_OP_MAX_IN], out[2][NDP_OP_MAX_OUT];
        k->asked = ~0u;
        const int places[] = {0, 1 + i % NDP_SPLITS};
        for (int split = 0; split < 2; split++) {
            make_call(k, NDP_F32, k->in, in[split], out[split]);
            run_op_split(k->op, &k->attr, in[split], out[split], tested(), 1, places[split]);
        }
        if (same_bits(&out[0][0], &out[1][0]))
            fail_msg("%s: the sums are the same", k->op->name);
        for (int split = 0; split < 2; split++)
            free_call(k, in[split], out[split]);
        free_matrices(k->in, k->op->n_in);
    }
}

/* Ops whose kernels another program compares with the reference: test_linear_stack, test_attention, test_delta_rule,
 * test_row_pieces, test_step_ops, test_pair_ops, test_unpack, optim/test_muon. */
static const ndp_op *const elsewhere[] = {&ndp_op_stack_bias,
                                          &ndp_op_stack_bias_db,
                                          &ndp_op_linear_stack,
                                          &ndp_op_linear_stack_dx,
                                          &ndp_op_linear_stack_dw,
                                          &ndp_op_attention_dsink,
                                          &ndp_op_attention,
                                          &ndp_op_attention_bwd,
                                          &ndp_op_conv_silu,
                                          &ndp_op_conv_silu_dx,
                                          &ndp_op_conv_silu_dw,
                                          &ndp_op_delta_decay,
                                          &ndp_op_delta_decay_da,
                                          &ndp_op_delta_decay_dlog,
                                          &ndp_op_delta_decay_ddt,
                                          &ndp_op_delta_rule,
                                          &ndp_op_delta_rule_bwd,
                                          &ndp_op_conv_step,
                                          &ndp_op_delta_step,
                                          &ndp_op_gate_by,
                                          &ndp_op_gate_by_bwd,
                                          &ndp_op_delta_map,
                                          &ndp_op_delta_map_back,
                                          &ndp_op_delta_states,
                                          &ndp_op_piece_ends,
                                          &ndp_op_piece_ends_dx,
                                          &ndp_op_conv_silu_dends,
                                          &ndp_op_count_valid,
                                          &ndp_op_zero,
                                          &ndp_op_loss_scale,
                                          &ndp_op_square_sum,
                                          &ndp_op_clip_factor,
                                          &ndp_op_newton_schulz,
                                          &ndp_op_document_sums,
                                          &ndp_op_row_score,
                                          &ndp_op_pair_loss,
                                          &ndp_op_pair_rows,
                                          &ndp_op_unpack};

/* The last test: an op without a case here, or there, fails. Those of optimizers are in optim/test_update. */
static void every_kernel_has_run(void **state) {
    (void)state;
    for (int i = 0; i < NDP_OP_COUNT; i++) {
        bool found = (op_ran[0][i] && op_ran[1][i]) || !ndp_device_ref.kernels[i] || ndp_op_kinds[i] == NDP_KIND_PIECES;
        for (int k = 0; k < NDP_COUNT(elsewhere); k++)
            found |= elsewhere[k] == ndp_all_ops[i];
        if (!found)
            fail_msg("%s has no case: compare its kernel with the reference here, or list where", ndp_all_ops[i]->name);
    }
}

/* The exact gelu is a polynomial and an exponential near 0, and 0 or x far from it. */
static void gelu_erf_is_exact_everywhere(void **state) {
    (void)state;
    enum { STEPS = 801, ALL = STEPS + 2 };
    ndp_view x = matrix(NDP_F32, 1, ALL), ones = matrix(NDP_F32, 1, ALL);
    ndp_view a[NDP_OP_MAX_OUT] = {matrix(NDP_F32, 1, ALL)}, slope[NDP_OP_MAX_OUT] = {matrix(NDP_F32, 1, ALL)};
    for (int i = 0; i < ALL; i++) {
        ndp_view_set(&x, 0, i, i < STEPS ? (i - STEPS / 2) / 25.0 : i == STEPS ? 1e30 : -1e30);
        ndp_view_set(&ones, 0, i, 1);
    }
    run_op(&ndp_op_gelu_erf, &(ndp_op_attr){0}, &x, a, tested(), 1);
    run_op(&ndp_op_gelu_erf_bwd, &(ndp_op_attr){0}, (ndp_view[]){ones, x}, slope, tested(), 1);
    for (int i = 0; i < ALL; i++) {
        double v = ndp_view_get(&x, 0, i), below = 0.5 * erfc(-v / sqrt(2));
        double by = below + v * exp(-v * v / 2) / sqrt(2 * M_PI);
        assert_true(fabs(ndp_view_get(&a[0], 0, i) - v * below) <= 3e-7 * fabs(v));
        assert_true(fabs(ndp_view_get(&slope[0], 0, i) - by) <= 1e-6);
    }
    free_matrices(&x, 1);
    free_matrices(&ones, 1);
    free_matrices(a, 1);
    free_matrices(slope, 1);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(embedding_kernels),
        cmocka_unit_test(embedding_dw_adds_rows_in_order),
        cmocka_unit_test(linear_kernels),
        cmocka_unit_test(linear_dx_in_place),
        cmocka_unit_test(rmsnorm_kernels),
        cmocka_unit_test(rmsnorm_of_heads_kernels),
        cmocka_unit_test(halves_of_rmsnorm_kernels),
        cmocka_unit_test(layernorm_kernels),
        cmocka_unit_test(kernels_of_wide_rows),
        cmocka_unit_test(sums_of_many_rows),
        cmocka_unit_test(rope_kernels),
        cmocka_unit_test(latent_keys_kernels),
        cmocka_unit_test(elementwise_kernels),
        cmocka_unit_test(gelu_erf_is_exact_everywhere),
        cmocka_unit_test(dora_kernels),
        cmocka_unit_test(add_columns_kernel),
        cmocka_unit_test(dropout_kernel),
        cmocka_unit_test(causal_conv_kernels),
        cmocka_unit_test(xent_kernels),
        cmocka_unit_test(xent_of_many_rows),
        cmocka_unit_test(linear_kernels_wide),
        cmocka_unit_test(add_in_place),
        cmocka_unit_test(copy_of_other_types),
        cmocka_unit_test(copy_and_add),
        cmocka_unit_test(heads_kernels),
        cmocka_unit_test(heads_by_hand),

        cmocka_unit_test(xent_slice_kernels),
        cmocka_unit_test(xent_without_training),
        cmocka_unit_test(cache_and_sum),
        cmocka_unit_test(attention_merge_kernel),
        cmocka_unit_test(route_kernels),
        cmocka_unit_test(score_route_kernels),
        cmocka_unit_test(choice_counts_kernel),
        cmocka_unit_test(router_bias_kernel),
        cmocka_unit_test(router_losses_kernel),
        cmocka_unit_test(route_order_kernel),
        cmocka_unit_test(route_exchange_kernel),
        cmocka_unit_test(take_rows_kernels),
        cmocka_unit_test(give_rows_kernels),
        cmocka_unit_test(weigh_rows_kernels),
        cmocka_unit_test(give_rows_dw_kernels),
        cmocka_unit_test(gate_rows_kernels),
        cmocka_unit_test(split_sums_are_others),
        cmocka_unit_test(every_kernel_has_run),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return end_of_ops(cmocka_run_group_tests(tests, NULL, NULL));
}
