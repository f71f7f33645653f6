/* The ops that move rows to experts and back: cases of their kernels against the reference. */
#ifndef NDP_TESTS_EXPERT_CASES_H
#define NDP_TESTS_EXPERT_CASES_H

#include "expert_operands.h"
#include "kernel_case.h"

/* Above 0, so that sums of few terms do not cancel. */
static inline ndp_view positive(int64_t rows, int64_t cols, uint64_t seed) {
    ndp_view v = some(rows, cols, seed);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            ndp_view_set(&v, r, c, 0.2 + fabs(ndp_view_get(&v, r, c)));
    return v;
}

/* Of alternating signs, so that differences of neighbours do not cancel. */
static inline ndp_view apart(int64_t rows, int64_t cols, uint64_t seed) {
    ndp_view v = positive(rows, cols, seed);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 1; c < cols; c += 2)
            ndp_view_set(&v, r, c, -ndp_view_get(&v, r, c));
    return v;
}

/* One, some and all experts; the last ones only where there are few. */
static inline int choices_of(int64_t experts, int variant) {
    int few = experts < 8 ? (int)experts : 8;
    return variant == 0 ? 1 : variant == 1 ? (few + 1) / 2 : experts > 17 ? few : (int)experts;
}

static void route_kernels(void **state) {
    (void)state;
    int at = 0;
    FOR_SIZES(t, e) for (int variant = at++ % short_or_all(5, 1); variant < 6; variant += short_or_all(5, 1)) {
        ndp_op_attr attr = {.choices = choices_of(e, variant % 3), .renormalise = variant >= 3};
        ndp_view samples = some_samples(t, 3);
        ndp_view in[] = {variant % 2 ? tied(t, e, 1) : some(t, e, 1), samples, {0}, {0}}, out[NDP_OP_MAX_OUT] = {{0}};
        make_outputs(&ndp_op_route, &attr, in, out, 3);
        run_op(&ndp_op_route, &attr, in, out, &ndp_device_ref, 1);
        kernel_case back = {&ndp_op_route_dx,
                            {.renormalise = attr.renormalise},
                            .wide = 1,
                            .in = {some(t, attr.choices, 2), copy_as(NDP_F32, &in[0]), out[0],
                                   variant % 2 ? some(t, e, 3) : (ndp_view){0}}};
        kernel_case forward = {&ndp_op_route, attr, .in = {in[0], samples}};
        kernel_case without_padding = {&ndp_op_route, attr, .asked = 3, .in = {copy_as(NDP_F32, &in[0])}};
        kernel_case given = {&ndp_op_route, attr,
                             .in = {copy_as(NDP_F32, &in[0]), {0}, some_choices(t, e, attr.choices, variant % 2)}};
        kernel_case given_back = {&ndp_op_route_dx,
                                  {.renormalise = attr.renormalise},
                                  .wide = 1,
                                  .in = {apart(t, attr.choices, 2), copy_as(NDP_F32, &in[0]),
                                         some_choices(t, e, attr.choices, variant % 2),
                                         variant % 2 ? some(t, e, 3) : (ndp_view){0}}};
        free_matrices(&out[1], 1);
        check_kernel(&back);
        check_kernel(&forward);
        check_kernel(&without_padding);
        check_kernel(&given);
        check_kernel(&given_back);
    }
}

/* Routers of sigmoids, with a bias and groups where experts are cut evenly: choices, keys, weights and gradients. */
static void score_route_kernels(void **state) {
    (void)state;
    FOR_SIZES(t, e) for (int variant = 0; variant < 6; variant++) {
        int groups = variant % 3 == 2 && e % 4 == 0 ? 4 : variant % 3 == 1 && e % 2 == 0 && e > 2 ? 2 : 0;
        bool renormalise = variant >= 3;
        ndp_op_attr attr = {.choices = groups ? 2 : choices_of(e, variant % 3),
                            .renormalise = renormalise,
                            .sigmoid = true,
                            .groups = groups,
                            .open_groups = groups ? groups - 1 : 0,
                            .group_best = groups && e / groups > 1 ? 2
                                          : groups                 ? 1
                                                                   : 0,
                            .scale = renormalise ? 2.5 : 0};
        attr.choices = groups && attr.open_groups * (e / groups) < 2 ? 1 : attr.choices;
        ndp_view samples = some_samples(t, 3), logits = variant % 2 ? tied(t, e, 1) : some(t, e, 1);
        ndp_view bias = variant == 4 ? (ndp_view){0} : some(1, e, 5);
        kernel_case forward = {&ndp_op_route, attr, .wide = 8, .in = {logits, samples, {0}, bias}};
        kernel_case given = {&ndp_op_route, attr, .wide = 8,
                             .in = {copy_as(NDP_F32, &logits), {0}, some_choices(t, e, attr.choices, variant % 2)}};
        kernel_case back = {&ndp_op_route_dx,
                            {.renormalise = renormalise, .sigmoid = true, .scale = attr.scale},
                            .wide = 1,
                            .in = {apart(t, attr.choices, 2), copy_as(NDP_F32, &logits),
                                   some_choices(t, e, attr.choices, variant % 2),
                                   variant % 2 ? some(t, e, 3) : (ndp_view){0}}};
        check_kernel(&forward);
        check_kernel(&given);
        check_kernel(&back);
    }
}

static inline ndp_view counts_of(ndp_view choices, const ndp_view *samples, int64_t experts) {
    ndp_op_attr attr = {.parts = 3, .experts = (int)experts};
    ndp_view in[] = {choices, *samples}, out[NDP_OP_MAX_OUT] = {{0}};
    make_outputs(&ndp_op_choice_counts, &attr, in, out, 1);
    run_op(&ndp_op_choice_counts, &attr, in, out, &ndp_device_ref, 1);
    free_matrices(&choices, 1);
    return out[0];
}

static void choice_counts_kernel(void **state) {
    (void)state;
    FOR_SIZES(t, e) for (int variant = 0; variant < 6; variant++) {
        kernel_case k = {&ndp_op_choice_counts,
                         {.parts = 3, .experts = (int)e},
                         .in = {some_choices(t, e, choices_of(e, variant % 3), variant >= 3), some_samples(t, 3)}};
        check_types(&k, true, false);
        kernel_case loads = {&ndp_op_choice_loads,
                             {.experts = (int)e, .accumulate = variant % 2},
                             .in = {some_choices(t, e, choices_of(e, variant % 3), variant >= 3)}};
        check_types(&loads, true, false);
    }
}

/* Slices before the last expert, at it, and behind; a step that is not applied changes nothing. */
static void router_bias_kernel(void **state) {
    (void)state;
    FOR_SIZES(n, e) for (int variant = 0; variant < 6; variant++) {
        ndp_view samples = some_samples(17, 3), clip = matrix(NDP_F64, 1, 1);
        ndp_view counts = counts_of(some_choices(17, e, choices_of(e, 1), false), &samples, e);
        counts.rows = 1;
        ndp_view_set(&clip, 0, 0, variant == 5 ? NAN : 0.5);
        kernel_case k = {&ndp_op_router_bias_step,
                         {.scale = 0.125,
                          .first = variant % 3 == 0   ? 0
                                   : variant % 3 == 1 ? e / 2
                                                      : e},
                         .wide = 1,
                         .exact = 6,
                         .in = {some(1, n, 1), counts, variant == 4 ? (ndp_view){0} : clip}};
        check_kernel(&k);
        if (variant == 4)
            free_matrices(&clip, 1);
        free_matrices(&samples, 1);
    }
}

/* With counts and without, with each of the losses and both, added to an earlier gradient or not. */
static void router_losses_kernel(void **state) {
    (void)state;
    FOR_SIZES(t, e) for (int variant = 0; variant < 6; variant++) {
        ndp_view samples = some_samples(t, 3), scale = matrix(NDP_F64, 1, 1);
        bool counted = variant % 3 != 1;
        ndp_view_set(&scale, 0, 0, 0.25);
        kernel_case k = {
            &ndp_op_router_losses_dx,
            {.parts = 2, .balance = counted ? 0.5 : 0, .z_loss = variant % 3 != 0 ? 0.3 : 0},
            .exact = 10,
            .in = {some(t, e, 1),
                   counted ? counts_of(some_choices(t, e, choices_of(e, 1), variant > 3), &samples, e) : (ndp_view){0},
                   samples, scale, variant % 2 ? some(t, e, 3) : (ndp_view){0}}};
        check_kernel(&k);
    }
}

/* The last sizes have several steps of a warp, and more experts than counts of 32 warps fit. */
static void route_order_kernel(void **state) {
    (void)state;
    FOR_SIZES(t, e) for (int variant = 0; variant < 6; variant++) {
        kernel_case k = {&ndp_op_route_order,
                         {.experts = (int)e},
                         .in = {some_choices(t, e, choices_of(e, variant % 3), variant >= 3)}};
        check_types(&k, true, false);
        k.attr.capacity =
            k.in[0].rows * k.in[0].cols; /* as many as there may be, and one less where none is of some row */
        k.attr.capacity -= k.in[0].rows > 3 && k.in[0].cols > 0;
        k.in[0] = some_choices(t, e, choices_of(e, variant % 3), variant >= 3);
        check_types(&k, true, false);
    }
    for (int i = 0; i < 2; i++) {
        int64_t e = i ? 700 : 5;
        kernel_case k = {&ndp_op_route_order, {.experts = (int)e}, .in = {some_choices(1700, e, 3, false)}};
        check_types(&k, true, false);
    }
}

/* Fewer ranks than choices and more, as many as experts, with more rows than a block of a device counts at once. */
static void route_exchange_kernel(void **state) {
    (void)state;
    int at = 0;
    FOR_SIZES(t, e) for (int variant = at++ % short_or_all(3, 1); variant < 9; variant += short_or_all(3, 1)) {
        int ranks = variant / 3 == 0 ? 1 : variant / 3 == 1 ? (int)(e + 2) / 3 : (int)(e < 40 ? e : 40);
        kernel_case k = {&ndp_op_route_exchange,
                         {.experts = (int)e, .ranks = ranks, .first = (int)t % ranks},
                         .in = {some_choices(t * ranks, e, choices_of(e, variant % 3), variant % 2), (ndp_view){0}}};
        if (t % 3 < 2)
            k.attr.capacity = k.in[0].cols + t;
        if (t % 3 == 1) {
            k.in[1] = matrix(NDP_I64, 1, 1);
            *(int64_t *)k.in[1].data = variant % 2;
        }
        check_types(&k, true, false);
    }
}

/* From operands of both types into destinations of both. */
static void take_rows_kernels(void **state) {
    (void)state;
    FOR_SIZES(t, c) for (unsigned variant = 0; variant < 8; variant++) {
        int64_t e = 5, k = variant & 1 ? 3 : 1;
        some_order o = order_of(some_choices(t, e, k, t == 17), e);
        kernel_case take = {&ndp_op_take_rows, .wide = 8, .other = variant >> 2,
                            .in = {some(t, c, 1), o.order, o.places, variant & 2 ? positive(t, k, 2) : (ndp_view){0}}};
        check_kernel(&take);
    }
}

static void give_rows_kernels(void **state) {
    (void)state;
    FOR_SIZES(t, c) for (unsigned variant = 0; variant < 24; variant++) {
        int64_t e = 5, k = variant & 1 ? 3 : 1;
        some_order o = order_of(some_choices(t, e, k, t == 17), e);
        bool wide_y = variant >= 16, wide_x = variant >= 8;
        kernel_case give = {&ndp_op_give_rows,
                            {.wide_grad = wide_x && !wide_y},
                            .wide = wide_y   ? 25
                                    : wide_x ? 24
                                             : 8,
                            .other = wide_y && !(variant & 4),
                            .in = {positive(t * k, c, 1), o.order, o.places,
                                   variant & 2 ? positive(t, k, 2) : (ndp_view){0},
                                   variant & 4 ? positive(t, c, 3) : (ndp_view){0}}};
        check_kernel(&give);
    }
}

/* With choices of no expert, whose rows are 0. */
static void weigh_rows_kernels(void **state) {
    (void)state;
    FOR_SIZES(t, c) for (int k = 1; k < 4; k += 2) {
        some_order o = order_of(some_choices(t, 5, k, t == 17), 5);
        kernel_case weigh = {&ndp_op_weigh_rows, .wide = 8,
                             .in = {some(t * k, c, 1), o.order, o.places, positive(t, k, 2)}};
        check_kernel(&weigh);
    }
}

/* Gates from shut to open. dy is above 0, like x, so that the terms of a sum do not cancel. */
static inline void check_gate_rows(int64_t t, int64_t c) {
    ndp_view gate = matrix(NDP_F32, t, 1);
    for (int64_t i = 0; i < t; i++)
        ndp_view_set(&gate, i, 0, (double)(i % 9 - 4) * 2.7 + 0.1);
    kernel_case gated = {&ndp_op_gate_rows, .wide = 2, .in = {some(t, c, 1), copy_as(NDP_F32, &gate)}};
    kernel_case dg = {&ndp_op_gate_rows_dg, .wide = 4, .in = {positive(t, c, 1), positive(t, c, 2), gate}};
    check_kernel(&gated);
    check_kernel(&dg);
}

/* Rows that threads keep, and wider ones. */
static void gate_rows_kernels(void **state) {
    (void)state;
    FOR_SIZES(t, c) check_gate_rows(t, c);
    check_gate_rows(3, 2100);
    check_gate_rows(3, 8400);
}

static inline void check_give_rows_dw(int64_t t, int64_t c, unsigned variant) {
    int64_t e = 5, k = variant & 1 ? 3 : 1;
    some_order o = order_of(some_choices(t, e, k, t == 17), e);
    kernel_case dw = {&ndp_op_give_rows_dw, .wide = variant >> 1,
                      .in = {positive(t, c, 1), positive(t * k, c, 2), o.places}};
    kernel_case weighed = {
        &ndp_op_weigh_rows_dw, .wide = 8 | variant >> 1,
        .in = {positive(t * k, c, 1), positive(t * k, c, 2), copy_as(NDP_I32, &o.places), positive(t, k, 3)}};
    ndp_view_set(&weighed.in[3], 0, 0, 0); /* nothing says what was weighed by it */
    free_matrices(&o.order, 1);
    check_kernel(&dw);
    check_kernel(&weighed);
}

/* Rows that threads keep, and wider ones. */
static void give_rows_dw_kernels(void **state) {
    (void)state;
    FOR_SIZES(t, c) for (unsigned variant = 0; variant < 8; variant++) check_give_rows_dw(t, c, variant);
    check_give_rows_dw(3, 2100, 1);
    check_give_rows_dw(3, 8400, 1);
}

#endif
